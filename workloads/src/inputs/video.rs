//! What x264 encodes: a panning texture, moving discs, film grain and a cut now and then.
//!
//! All arithmetic is on integers, so the film is the same on every machine.

use std::fs::File;
use std::io::{BufWriter, Write as _};
use std::path::Path;

use anyhow::Result;

use super::Rng;
use crate::Size;

const WIDTH: usize = 640;
const HEIGHT: usize = 360;
const FRAMES_PER_SCENE: usize = 60;

pub(crate) fn generate(dir: &Path, size: Size) -> Result<()> {
    let frames = size.pick(8, 270);
    let mut rng = Rng::new(0x7832_3634);
    let texture: Vec<u8> = (0..65_536)
        .map(|_| rng.next_u64().to_le_bytes()[0])
        .collect();
    let mut file = BufWriter::new(File::create(dir.join("film.y4m"))?);
    writeln!(file, "YUV4MPEG2 W{WIDTH} H{HEIGHT} F25:1 Ip A1:1 C420jpeg")?;
    for frame in 0..frames {
        file.write_all(b"FRAME\n")?;
        file.write_all(&luma(frame, &texture, &mut rng))?;
        for plane in 0..2 {
            file.write_all(&chroma(frame, plane))?;
        }
    }
    Ok(file.flush()?)
}

/// Smooth value noise: the texture, interpolated over cells of 16 pixels.
fn noise(texture: &[u8], x: usize, y: usize) -> usize {
    let (cell_x, cell_y, part_x, part_y) = (x / 16, y / 16, x % 16, y % 16);
    let at = |dx: usize, dy: usize| {
        usize::from(texture[((cell_y + dy) & 255) * 256 + ((cell_x + dx) & 255)])
    };
    let top = at(0, 0) * (16 - part_x) + at(1, 0) * part_x;
    let bottom = at(0, 1) * (16 - part_x) + at(1, 1) * part_x;
    (top * (16 - part_y) + bottom * part_y) / 256
}

fn luma(frame: usize, texture: &[u8], rng: &mut Rng) -> Vec<u8> {
    let scene = frame / FRAMES_PER_SCENE;
    let (pan_x, pan_y) = (frame * (2 + scene), frame + 997 * scene);
    let mut plane = Vec::with_capacity(WIDTH * HEIGHT);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let mut value = 40 + noise(texture, x + pan_x, y + pan_y) / 2;
            for disc in 0..5 {
                let centre_x = (frame * (3 + 2 * disc) + 131 * disc) % WIDTH;
                let centre_y = (frame * (1 + disc) + 71 * disc) % HEIGHT;
                let distance = x.abs_diff(centre_x).pow(2) + y.abs_diff(centre_y).pow(2);
                if distance < 900 + 400 * disc {
                    value = 60 + 35 * disc + (x ^ y) % 16;
                }
            }
            let grain = rng.below(7);
            plane.push(u8::try_from((value + grain).min(235)).unwrap_or(235));
        }
    }
    plane
}

fn chroma(frame: usize, plane: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(WIDTH * HEIGHT / 4);
    for y in 0..HEIGHT / 2 {
        for x in 0..WIDTH / 2 {
            let wave = (x + 2 * y + frame * (1 + plane)) / 4 % 64;
            out.push(u8::try_from(96 + wave.abs_diff(32)).unwrap_or(128));
        }
    }
    out
}
