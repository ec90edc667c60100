//! Choices: reads the bytes of an input as numbers. After its end all numbers are zero.

/// The rest of an input.
pub struct Choices<'a>(&'a [u8]);

impl<'a> Choices<'a> {
    /// All of an input.
    pub fn new(input: &'a [u8]) -> Self {
        Self(input)
    }

    /// Whether everything is read.
    pub fn is_over(&self) -> bool {
        self.0.is_empty()
    }

    /// The next byte.
    pub fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.0.split_first() else { return 0 };
        self.0 = rest;
        *first
    }

    /// Any number.
    pub fn word(&mut self) -> u32 {
        u32::from_be_bytes([self.byte(), self.byte(), self.byte(), self.byte()])
    }

    /// A number below `bound`, or zero; it costs as few bytes as it can.
    pub fn below(&mut self, bound: u32) -> u32 {
        let bound = bound.max(1);
        match bound {
            0..=0x100 => u32::from(self.byte()) % bound,
            0x101..=0x1_0000 => u32::from_be_bytes([0, 0, self.byte(), self.byte()]) % bound,
            _ => self.word() % bound,
        }
    }

    /// Yes or no.
    pub fn flag(&mut self) -> bool {
        self.byte() % 2 == 1
    }

    /// True about once in `rarity` times.
    pub fn rarely(&mut self, rarity: u32) -> bool {
        self.below(rarity) == rarity - 1
    }

    /// Chooses one of these values; there is at least one.
    pub fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u32) as usize]
    }
}
