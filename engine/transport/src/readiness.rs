//! What a poll will find, and when.

/// What a poll will find.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// Work, now.
    Now,
    /// Work at that time, in ns.
    At(u64),
    /// A message that waits for a Receive.
    Soon,
    /// Nothing until the peer acts.
    Nothing,
}

impl Readiness {
    /// The sooner of both.
    pub(crate) fn sooner(self, other: Readiness) -> Readiness {
        match (self, other) {
            (Readiness::Now, _) | (_, Readiness::Now) => Readiness::Now,
            (Readiness::At(one), Readiness::At(other)) => Readiness::At(one.min(other)),
            (Readiness::At(at), _) | (_, Readiness::At(at)) => Readiness::At(at),
            (Readiness::Soon, _) | (_, Readiness::Soon) => Readiness::Soon,
            (Readiness::Nothing, Readiness::Nothing) => Readiness::Nothing,
        }
    }
}
