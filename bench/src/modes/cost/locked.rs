//! Locked instructions: which of the executed instructions lock a cache line.
//!
//! callgrind says how often the instruction at an address was executed. Whether it is a locked one
//! stands in the program's file: the prefix F0, or an exchange with memory, which locks without it.

use std::fs;
use std::path::Path;

/// How many of the executed instructions were locked: addresses of the program's file, and how
/// often each was executed.
pub fn count(program: &Path, executed: &[(u64, u64)]) -> Result<u64, String> {
    if cfg!(not(target_arch = "x86_64")) {
        return Err("known on x86_64 only".into());
    }
    let file = fs::read(program).map_err(|why| format!("{}: {why}", program.display()))?;
    let segments = segments(&file).ok_or("not an ELF file of 64 bits")?;
    let mut locked = 0;
    for (address, times) in executed {
        let code = segments.iter().find_map(|segment| segment.bytes_at(&file, *address));
        let code = code.ok_or_else(|| format!("{address:#x} is not in the program's file"))?;
        locked += if is_locked(code) { *times } else { 0 };
    }
    Ok(locked)
}

fn is_locked(code: &[u8]) -> bool {
    let mut code = code.iter().copied();
    // Prefixes: operand and address size, segments, repetition; REX comes last.
    let opcode = code.find_map(|byte| match byte {
        0xf0 => Some(None),
        0x66 | 0x67 | 0x26 | 0x2e | 0x36 | 0x3e | 0x64 | 0x65 | 0xf2 | 0xf3 | 0x40..=0x4f => None,
        opcode => Some(Some(opcode)),
    });
    match opcode {
        Some(None) => true,
        // XCHG; with a register in place of memory nothing is locked.
        Some(Some(0x86 | 0x87)) => code.next().is_some_and(|modrm| modrm >> 6 != 3),
        _ => false,
    }
}

struct Segment {
    offset: u64,
    address: u64,
    len: u64,
}

impl Segment {
    fn bytes_at<'f>(&self, file: &'f [u8], address: u64) -> Option<&'f [u8]> {
        let within = address.checked_sub(self.address).filter(|within| *within < self.len)?;
        let (start, end) = (self.offset.checked_add(within)?, self.offset.checked_add(self.len)?);
        file.get(usize::try_from(start).ok()?..usize::try_from(end).ok()?)
    }
}

fn segments(file: &[u8]) -> Option<Vec<Segment>> {
    if !file.starts_with(b"\x7fELF\x02\x01") {
        return None;
    }
    let word = |at: u64| {
        let at = usize::try_from(at).ok()?;
        file.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
    };
    let half = |at: u64| word(at).map(|word| word & 0xffff);
    let (table, size, count) = (word(32)?, half(54)?, half(56)?);
    let mut segments = Vec::new();
    for index in 0..count {
        let at = table.checked_add(index * size)?;
        if word(at)? as u32 == LOAD {
            let (offset, address, len) = (word(at + 8)?, word(at + 16)?, word(at + 32)?);
            segments.push(Segment { offset, address, len });
        }
    }
    Some(segments)
}

const LOAD: u32 = 1;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_prefix_locks_whatever_stands_before_it() {
        assert!(is_locked(&[0xf0, 0x0f, 0xb1, 0x0f]), "lock cmpxchg");
        assert!(is_locked(&[0x66, 0xf0, 0x0f, 0xb1, 0x0f]), "lock cmpxchg of 16 bits");
        assert!(!is_locked(&[0x48, 0x89, 0xf0]), "mov rax, rsi: F0 is no prefix here");
    }

    #[test]
    fn an_exchange_locks_memory_and_no_register() {
        assert!(is_locked(&[0x48, 0x87, 0x07]), "xchg [rdi], rax");
        assert!(is_locked(&[0x86, 0x07]), "xchg [rdi], al");
        assert!(!is_locked(&[0x48, 0x87, 0xc7]), "xchg rdi, rax");
        assert!(!is_locked(&[]));
    }

    #[test]
    fn an_address_outside_of_the_file_is_an_error() {
        let program = std::env::current_exe().expect("this program");
        if cfg!(target_arch = "x86_64") {
            assert_eq!(count(&program, &[]), Ok(0));
            assert!(count(&program, &[(u64::MAX, 1)]).is_err());
        }
    }

    #[test]
    fn what_is_no_program_has_no_segments() {
        assert!(segments(b"#!/bin/sh").is_none());
        assert!(segments(b"\x7fELF\x02\x01").is_none(), "cut short");
    }
}
