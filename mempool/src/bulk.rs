//! Large registered buffers for applications.

use crate::loan::{self, Loan, LoanHome};
use crate::pool::{PoolError, PoolSpec};
use crate::registered::Registered;

/// Equal blocks of registered memory, handed out as loans: what a program fills and sends, or keeps
/// placed data in. Belongs to one thread; the loans go where they like.
#[derive(Debug)]
pub struct BulkPool {
    /// Never longer than made.
    blocks: Vec<Loan>,
    capacity: usize,
    home: LoanHome,
}

impl BulkPool {
    /// Carves the blocks out of registered memory.
    pub fn new(memory: &mut Registered, spec: &PoolSpec) -> Result<BulkPool, PoolError> {
        let (home, kinds) = LoanHome::new(memory, &[*spec])?;
        let blocks: Vec<Loan> = kinds.into_iter().flatten().collect();
        Ok(BulkPool { capacity: blocks.len(), blocks, home })
    }

    /// A block, whole, with whatever its last owner left in it.
    #[inline]
    pub fn take(&mut self) -> Option<Loan> {
        if self.blocks.is_empty() {
            self.reclaim();
        }
        self.blocks.pop()
    }

    /// Takes a loan home without a locked instruction.
    ///
    /// # Errors
    /// The loan, if it is another pool's.
    #[inline]
    pub fn give_back(&mut self, loan: Loan) -> Result<(), Loan> {
        let (_, loan) = self.home.receive(loan)?;
        self.blocks.push(loan);
        Ok(())
    }

    /// Takes home the loans that were dropped, on whatever thread. One plain load if there is none.
    #[inline]
    pub fn reclaim(&mut self) {
        let blocks = &mut self.blocks;
        self.home.reclaim(|_, loan| blocks.push(loan));
    }

    /// Writes `byte` over every block at home. For tests: what must never be sent.
    pub fn poison(&mut self, byte: u8) {
        self.blocks.iter_mut().for_each(|block| block.fill(byte));
    }

    /// Blocks at home; those that came home and were not reclaimed do not count.
    #[inline]
    pub fn free(&self) -> usize {
        self.blocks.len()
    }

    /// Blocks that came home and were not reclaimed. Walks a list: for tests.
    pub fn returning(&self) -> usize {
        self.home.returning()
    }

    /// Whether a loan is of this pool.
    pub fn owns(&self, loan: &Loan) -> bool {
        self.home.owns(loan)
    }

    /// Blocks in all.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl PoolSpec {
    /// Bytes of a region that suffice for a [`BulkPool`], whatever was carved before it.
    pub fn bulk_region_len(&self) -> Result<usize, PoolError> {
        loan::region_len(&[*self])
    }
}
