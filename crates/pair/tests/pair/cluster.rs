//! The resource agent for Pacemaker: each of its actions, as a cluster calls them on two nodes.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use crate::sites::*;
use crate::threads::{redis, redis_of};

const AGENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/pacemaker/steadfast-pair");
const SUCCESS: Option<i32> = Some(0);
const INSTALLED: Option<i32> = Some(5);
const CONFIGURED: Option<i32> = Some(6);
const NOT_RUNNING: Option<i32> = Some(7);

/// A mount namespace with disks of its own.
struct Node {
    holder: Child,
    config: PathBuf,
}

impl Node {
    fn new(dir: &Path, name: &str) -> Self {
        let disks = "mount -t tmpfs none /mnt && mkdir /mnt/data /mnt/ledger && mount -t tmpfs none /mnt/data && \
                     mount -t tmpfs none /mnt/ledger && echo up && exec sleep 1000";
        let mut holder = Command::new("unshare")
            .args([
                "--mount",
                "--propagation",
                "private",
                "--",
                "sh",
                "-c",
                disks,
            ])
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare is installed");
        let mut up = [0; 3];
        let mut from = holder.stdout.take().expect("piped");
        std::io::Read::read_exact(&mut from, &mut up).expect("it is up");
        let config = dir.join(name);
        Self { holder, config }
    }

    fn configure(
        &self,
        side: &str,
        [own, other]: [u16; 2],
        [http, other_http]: [u16; 2],
        witness: &Witness,
    ) {
        let command = "redis-server --port 0 --unixsocket /mnt/redis --appendonly yes --save";
        let text = format!(
            "STEADFAST_PAIR_SIDE={side}\n\
             STEADFAST_PAIR_OPTIONS=--peer 127.0.0.1:{other} --listen 127.0.0.1:{own} --http 127.0.0.1:{http} --ledger /mnt/ledger \
             --data /mnt/data --witness dir:{} --lost-after 1000 --patience 60\n\
             STEADFAST_PAIR_COMMAND={command} 86400 1000000\n\
             STEADFAST_PAIR_PEER_HTTP=127.0.0.1:{other_http}\n",
            witness.0.display()
        );
        fs::write(&self.config, text).expect("a file");
    }

    fn agent(&self, action: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .args(["-t", &self.holder.id().to_string(), "-m", AGENT, action])
            .env("OCF_RESKEY_binary", pair())
            .env("OCF_RESKEY_config", &self.config)
            .env("OCF_RESKEY_ledger", "/mnt/ledger")
            .env("OCF_RESKEY_directory", "/mnt/data")
            .env("OCF_RESOURCE_INSTANCE", "shop")
            .env("OCF_RESKEY_CRM_meta_timeout", "60000")
            .env("HA_RSCTMP", "/mnt/run");
        command
    }

    fn act(&self, action: &str) -> Option<i32> {
        let status = self.agent(action).status().expect("it runs");
        status.code()
    }

    /// What its sites have said.
    fn said(&self) -> String {
        let log = format!(
            "/proc/{}/root/mnt/run/steadfast-pair-shop.log",
            self.holder.id()
        );
        fs::read_to_string(log).unwrap_or_default()
    }

    fn site(&self) -> i32 {
        let pid = format!(
            "/proc/{}/root/mnt/run/steadfast-pair-shop.pid",
            self.holder.id()
        );
        let pid = fs::read_to_string(pid).expect("it runs");
        pid.trim().parse().expect("a number")
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.act("stop");
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

#[test]
fn a_cluster_starts_watches_and_stops_a_site_on_each_of_two_nodes() {
    if !is_root() {
        return; // two mount namespaces that a process enters later
    }
    let dir = seed("cluster");
    let witness = Witness::new("cluster");
    let [a, b] = ["a", "b"].map(|name| Node::new(&dir, name));
    let [door_a, door_b, http_a, http_b] = [0; 4].map(|_| free_port());
    assert_eq!(a.act("validate-all"), INSTALLED, "no configuration");
    a.configure("neither", [door_a, door_b], [http_a, http_b], &witness);
    assert_eq!(a.act("validate-all"), CONFIGURED);
    a.configure("primary", [door_a, door_b], [http_a, http_b], &witness);
    b.configure("secondary", [door_b, door_a], [http_b, http_a], &witness);
    for node in [&a, &b] {
        assert_eq!(node.act("validate-all"), SUCCESS);
        assert_eq!(node.act("monitor"), NOT_RUNNING);
        assert_eq!(node.act("stop"), SUCCESS, "it does not run");
    }

    // As a cluster does it, at once.
    let starts = [&a, &b].map(|node| node.agent("start").spawn().expect("it runs"));
    for mut start in starts {
        assert_eq!(start.wait().expect("a child").code(), SUCCESS);
    }
    for node in [&a, &b] {
        assert_eq!(node.act("monitor"), SUCCESS);
        assert_eq!(node.act("start"), SUCCESS, "it runs");
    }
    redis(&mut redis_of(&a.holder), "SET k v", "+OK\r\n");

    // The node of the site that leads is drained, and comes back.
    assert_eq!(a.act("stop"), SUCCESS);
    assert_eq!([a.act("monitor"), b.act("monitor")], [NOT_RUNNING, SUCCESS]);
    redis(&mut redis_of(&b.holder), "GET k", "$1\r\nv\r\n");
    assert_eq!(a.act("start"), SUCCESS, "it joins");

    // Now the one that leads dies.
    steadfast_sys::child::kill(b.site(), libc::SIGKILL);
    while b.act("monitor") != NOT_RUNNING {}
    assert_eq!(
        [a.act("monitor"), b.act("monitor")],
        [SUCCESS, NOT_RUNNING],
        "{}\n{}",
        a.said(),
        b.said()
    );
    assert_eq!(b.act("start"), SUCCESS, "it joins");
    redis(&mut redis_of(&a.holder), "GET k", "$1\r\nv\r\n");
    for node in [&b, &a] {
        assert_eq!(node.act("stop"), SUCCESS);
        assert_eq!(node.act("monitor"), NOT_RUNNING);
    }
    drop((a, b));
    fs::remove_dir_all(dir).expect("clean");
}
