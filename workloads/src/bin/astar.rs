//! A* over a made-up map: terrain with costs, walls with gaps, many queries.
//!
//! Stands for SPEC's astar. Arguments: side of the square map, number of queries. The search is
//! the pathfinding crate's; the map and the queries come from the seed below. It prints one line
//! per query: the cost of the way and its length, or that there is none.

#![allow(
    clippy::print_stdout,
    reason = "a workload speaks through its standard output"
)]

use std::env;
use std::process::ExitCode;

use pathfinding::prelude::astar;
use steadfast_workloads::inputs::Rng;

/// A point of the map; 32 bits keep the search's tables as small as a real one's.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Point {
    x: u32,
    y: u32,
}

struct Map {
    side: u32,
    /// Cost of entering a cell; zero is a wall.
    cost: Vec<u8>,
}

impl Map {
    fn new(side: u32, rng: &mut Rng) -> Self {
        let cells = side as usize * side as usize;
        let mut cost: Vec<u8> = (0..cells).map(|_| *rng.pick(&[1, 1, 1, 2, 3, 5])).collect();
        for _ in 0..side * 2 {
            // A wall: a straight run of closed cells.
            let (x, y) = (rng.below(side as usize), rng.below(side as usize));
            let step = if rng.chance(50) { 1 } else { side as usize };
            let from = y * side as usize + x;
            for cell in (0..side as usize / 40)
                .map(|n| from + n * step)
                .filter(|&c| c < cells)
            {
                cost[cell] = 0;
            }
        }
        Map { side, cost }
    }

    fn cost(&self, at: Point) -> u32 {
        u32::from(self.cost[at.y as usize * self.side as usize + at.x as usize])
    }

    fn neighbours(&self, at: Point) -> impl Iterator<Item = (Point, u32)> + '_ {
        const STEPS: [(i32, i32); 4] = [(0, -1), (-1, 0), (1, 0), (0, 1)];
        STEPS.into_iter().filter_map(move |(dx, dy)| {
            let x = at.x.checked_add_signed(dx).filter(|&x| x < self.side)?;
            let y = at.y.checked_add_signed(dy).filter(|&y| y < self.side)?;
            let to = Point { x, y };
            (self.cost(to) > 0).then(|| (to, self.cost(to)))
        })
    }

    fn open_point(&self, rng: &mut Rng) -> Point {
        let mut ordinate = || {
            let at = rng.below(self.side as usize);
            u32::try_from(at).expect("below the side, which is a u32")
        };
        loop {
            let at = Point {
                x: ordinate(),
                y: ordinate(),
            };
            if self.cost(at) > 0 {
                return at;
            }
        }
    }
}

fn main() -> ExitCode {
    let args: Vec<u32> = env::args()
        .skip(1)
        .filter_map(|arg| arg.parse().ok())
        .collect();
    let &[side, queries] = args.as_slice() else {
        println!("usage: workload-astar SIDE QUERIES");
        return ExitCode::from(64);
    };
    let mut rng = Rng::new(0x6173_7461_7200);
    let map = Map::new(side, &mut rng);
    for query in 0..queries {
        let (from, to) = (map.open_point(&mut rng), map.open_point(&mut rng));
        let distance = |at: &Point| at.x.abs_diff(to.x) + at.y.abs_diff(to.y);
        match astar(
            &from,
            |&at| map.neighbours(at).collect::<Vec<_>>(),
            distance,
            |&at| at == to,
        ) {
            Some((way, cost)) => println!("{query}: cost {cost} over {} cells", way.len()),
            None => println!("{query}: no way"),
        }
    }
    ExitCode::SUCCESS
}
