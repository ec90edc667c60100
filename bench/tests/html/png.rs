//! As much of PNG as a browser writes: eight bits a colour, not interlaced.

use std::collections::HashMap;
use std::io::Read as _;

use flate2::read::ZlibDecoder;

/// A picture.
pub struct Picture {
    pub width: usize,
    pub height: usize,
    /// Red, green and blue of each point, row by row.
    pub points: Vec<[u8; 3]>,
}

impl Picture {
    /// Reads a file's bytes.
    pub fn read(bytes: &[u8]) -> Picture {
        let mut rest = bytes.strip_prefix(b"\x89PNG\r\n\x1a\n").expect("a PNG");
        let (mut head, mut data) = (Vec::new(), Vec::new());
        while let [a, b, c, d, k0, k1, k2, k3, tail @ ..] = rest {
            let len = u32::from_be_bytes([*a, *b, *c, *d]) as usize;
            match &[*k0, *k1, *k2, *k3] {
                b"IHDR" => head.extend_from_slice(&tail[..len]),
                b"IDAT" => data.extend_from_slice(&tail[..len]),
                _ => {}
            }
            rest = &tail[len + 4..];
        }
        let number =
            |at: usize| u32::from_be_bytes(head[at..at + 4].try_into().expect("four bytes"));
        let (width, height) = (number(0) as usize, number(4) as usize);
        assert_eq!((head[8], head[12]), (8, 0), "eight bits, not interlaced");
        let channels = match head[9] {
            2 => 3,
            6 => 4,
            other => panic!("colour type {other}"),
        };
        let mut lines = Vec::new();
        ZlibDecoder::new(&*data).read_to_end(&mut lines).expect("deflated");
        let line_len = 1 + width * channels;
        assert_eq!(lines.len(), line_len * height);
        let mut before = vec![0u8; width * channels];
        let mut points = Vec::with_capacity(width * height);
        for line in lines.chunks_exact(line_len) {
            let row = unfilter(line[0], &line[1..], &before, channels);
            points.extend(row.chunks_exact(channels).map(|point| [point[0], point[1], point[2]]));
            before = row;
        }
        Picture { width, height, points }
    }

    /// The share of points that do not have the colour of most, in a part of the rows.
    pub fn ink(&self, rows: std::ops::Range<usize>) -> f64 {
        let part = &self.points[rows.start * self.width..rows.end * self.width];
        let mut counts: HashMap<[u8; 3], usize> = HashMap::new();
        for point in part {
            *counts.entry(*point).or_default() += 1;
        }
        let most = counts.values().max().copied().unwrap_or(0);
        1.0 - most as f64 / part.len().max(1) as f64
    }

    /// How bright the corner is, 0 to 255.
    pub fn ground(&self) -> u8 {
        *self.points[0].iter().max().expect("three colours")
    }
}

/// A row as it was before it was filtered.
fn unfilter(kind: u8, line: &[u8], before: &[u8], channels: usize) -> Vec<u8> {
    let mut row = vec![0u8; line.len()];
    for at in 0..line.len() {
        let left = at.checked_sub(channels).map_or(0, |at| row[at]);
        let corner = at.checked_sub(channels).map_or(0, |at| before[at]);
        let up = before[at];
        let guess = match kind {
            0 => 0,
            1 => left,
            2 => up,
            3 => u16::midpoint(left.into(), up.into()) as u8,
            4 => paeth(left, up, corner),
            other => panic!("filter {other}"),
        };
        row[at] = line[at].wrapping_add(guess);
    }
    row
}

/// The one of three that is nearest to `left + up - corner`.
fn paeth(left: u8, up: u8, corner: u8) -> u8 {
    let guess = i16::from(left) + i16::from(up) - i16::from(corner);
    let off = |value: u8| (guess - i16::from(value)).abs();
    if off(left) <= off(up) && off(left) <= off(corner) {
        left
    } else if off(up) <= off(corner) {
        up
    } else {
        corner
    }
}
