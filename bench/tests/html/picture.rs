//! A screenshot.

use std::collections::HashMap;

pub struct Picture {
    pub width: usize,
    pub height: usize,
    /// Red, green and blue of each point, row by row.
    pub points: Vec<[u8; 3]>,
}

impl Picture {
    pub fn read(bytes: &[u8]) -> Picture {
        let mut decoder = png::Decoder::new(std::io::Cursor::new(bytes));
        decoder.set_transformations(png::Transformations::normalize_to_color8());
        let mut reader = decoder.read_info().expect("a PNG");
        let mut data = vec![0; reader.output_buffer_size().expect("it fits in memory")];
        let info = reader.next_frame(&mut data).expect("a whole picture");
        let channels = info.color_type.samples();
        let points = data[..info.buffer_size()].chunks_exact(channels);
        let points = points.map(|point| [point[0], point[1], point[2]]).collect();
        Picture { width: info.width as usize, height: info.height as usize, points }
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
