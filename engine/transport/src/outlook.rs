//! What a poll will find, and when.

/// What a poll will find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outlook {
    /// Work, now.
    Now,
    /// Work at that time, in ns.
    At(u64),
    /// A message that waits for a Receive.
    Soon,
    /// Nothing until the peer acts.
    Nothing,
}

impl Outlook {
    /// The sooner of both.
    pub(crate) fn sooner(self, other: Outlook) -> Outlook {
        match (self, other) {
            (Outlook::Now, _) | (_, Outlook::Now) => Outlook::Now,
            (Outlook::At(one), Outlook::At(other)) => Outlook::At(one.min(other)),
            (Outlook::At(at), _) | (_, Outlook::At(at)) => Outlook::At(at),
            (Outlook::Soon, _) | (_, Outlook::Soon) => Outlook::Soon,
            (Outlook::Nothing, Outlook::Nothing) => Outlook::Nothing,
        }
    }
}
