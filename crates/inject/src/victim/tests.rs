use super::own::{Agent, Bytes};
use super::strike::private;
use super::*;
use crate::models::Shape;

fn place() -> Place {
    Place {
        module: "prog".into(),
        build_id: None,
        offset: "0x10".into(),
        function: None,
        line: None,
        disassembly: String::new(),
        opcode: String::new(),
    }
}

fn sites(draw: &mut Draw) -> Option<Execution> {
    let n = 1 + draw.below(9);
    Some(Execution {
        text: format!("at=prog+0x10 n={n}"),
        place: place(),
        n,
    })
}

fn drawn(victim: Victim, runs: u64) -> Vec<Group> {
    let seed = Seed::parse("5eed").expect("a seed");
    let wanted = Wanted {
        models: &Model::SEI,
        shape: Shape::default(),
        runs,
        seed: &seed,
        input: 100,
    };
    let executed = Agent::open()
        .expect("the agent")
        .functions(&["sf_send", "sf_pause"]);
    let counts = Counts {
        replicas: vec![executed.iter().map(|site| (site.offset, 3)).collect(); 2],
        events: 12,
    };
    draw(victim, &wanted, &counts, &sites).expect("a plan")
}

#[test]
fn each_victim_has_faults_of_the_types_that_it_names() {
    for victim in [Victim::Agent, Victim::Log, Victim::Processes] {
        let groups = drawn(victim, 3);
        let names: Vec<String> = groups.iter().map(|group| group.name.clone()).collect();
        assert_eq!(names, victim.fault_types(&Model::SEI));
        for group in &groups {
            assert_eq!(group.drawn.len(), 3, "{}", group.name);
            for one in &group.drawn {
                let faults = steadfast_fault::Fault::parse_all(&one.fault);
                let outside = one.fault.is_empty() && one.strike.is_some();
                assert!(outside || faults.is_ok(), "{}: {}", group.name, one.fault);
            }
        }
    }
    assert!(drawn(Victim::Program, 3).is_empty());
}

#[test]
fn a_plan_follows_from_its_seed() {
    let text = || -> Vec<String> {
        let all = drawn(Victim::Agent, 4).into_iter();
        all.flat_map(|group| group.drawn)
            .map(|one| one.fault)
            .collect()
    };
    assert_eq!(text(), text());
}

#[test]
fn bytes_in_holes_are_not_drawn() {
    let bytes = Bytes(vec![0..10, 20..30]).without(&[5..25, 29..40]);
    assert_eq!(bytes.0, [0..5, 25..29]);
    let mut draw = Seed::parse("1").expect("a seed").stream(0, 0);
    for _ in 0..100 {
        let byte = bytes.draw(&mut draw);
        assert!((0..5).contains(&byte) || (25..29).contains(&byte), "{byte}");
    }
}

#[test]
fn strikes_leave_shared_and_kernel_pages_alone() {
    let heap = "55d0c000-55d0d000 rw-p 00000000 00:00 0 [heap]";
    assert_eq!(
        private(heap, false),
        Some((0x55d0_c000..0x55d0_d000, "[heap]"))
    );
    for line in [
        "7f00c000-7f00d000 rw-s 00000000 00:01 7 /memfd:steadfast (deleted)",
        "7f00c000-7f00d000 r--p 00000000 00:00 0 [vvar]",
        "7f00c000-7f00d000 ---p 00000000 00:00 0",
    ] {
        assert_eq!(private(line, false), None, "{line}");
    }
    let planted = "7f00c000-7f00d000 r-xp 00000000 00:00 0 ";
    assert_eq!(private(planted, true), Some((0x7f00_c000..0x7f00_d000, "")));
    assert_eq!(private(heap, true), None);
}
