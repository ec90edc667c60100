//! Large registered buffers for programs.

use crate::loan::{self, Loan, LoanPool};
use crate::pool::{PoolError, PoolSpec};
use crate::registered::Registered;

/// Equal blocks of registered memory, lent as loans: a program fills and sends them, or receives
/// results in them. The pool belongs to one thread; the loans may go to any thread.
#[derive(Debug)]
pub struct BulkPool {
    /// Never grows beyond its initial length.
    blocks: Vec<Loan>,
    capacity: usize,
    loans: LoanPool,
}

impl BulkPool {
    /// Carves the blocks out of registered memory.
    pub fn new(memory: &mut Registered, spec: &PoolSpec) -> Result<BulkPool, PoolError> {
        let (loans, kinds) = LoanPool::new(memory, &[*spec])?;
        let blocks: Vec<Loan> = kinds.into_iter().flatten().collect();
        Ok(BulkPool { capacity: blocks.len(), blocks, loans })
    }

    /// Takes a whole block, with the bytes that its last owner left in it.
    #[inline]
    pub fn take(&mut self) -> Option<Loan> {
        if self.blocks.is_empty() {
            self.reclaim();
        }
        self.blocks.pop()
    }

    /// Returns a loan to the pool without a locked instruction.
    ///
    /// # Errors
    /// The loan, if it belongs to another pool.
    #[inline]
    pub fn give_back(&mut self, loan: Loan) -> Result<(), Loan> {
        let (_, loan) = self.loans.receive(loan)?;
        self.blocks.push(loan);
        Ok(())
    }

    /// Returns the dropped loans to the pool, from all threads. One plain load if there is none.
    #[inline]
    pub fn reclaim(&mut self) {
        let blocks = &mut self.blocks;
        self.loans.reclaim(|_, loan| blocks.push(loan));
    }

    /// Writes `byte` over every free block. For tests: bytes that must never be sent.
    pub fn poison(&mut self, byte: u8) {
        self.blocks.iter_mut().for_each(|block| block.fill(byte));
    }

    /// The number of free blocks, without those that were dropped and not reclaimed.
    #[inline]
    pub fn free(&self) -> usize {
        self.blocks.len()
    }

    /// The number of blocks that were dropped and not reclaimed. Walks a list: for tests.
    pub fn returning(&self) -> usize {
        self.loans.returning()
    }

    /// Whether a loan is from this pool.
    pub fn owns(&self, loan: &Loan) -> bool {
        self.loans.owns(loan)
    }

    /// The total number of blocks.
    #[inline]
    pub fn capacity(&self) -> usize {
        self.capacity
    }
}

impl PoolSpec {
    /// The length of a region that suffices for a [`BulkPool`] after any parts carved before it.
    pub fn bulk_region_len(&self) -> Result<usize, PoolError> {
        loan::region_len(&[*self])
    }
}
