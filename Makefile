# Everything a person or a CI machine does with this repository. `make help` lists the targets.
#
# On a bare Debian 12 with make and a shell each of them works at once: what is missing is installed first (scripts/setup).

SHELL := /bin/sh
PREFIX ?= /usr/local
DESTDIR ?=

# One place for build products, whatever the environment or a personal cargo configuration says.
CARGO_TARGET_DIR := $(CURDIR)/target
export CARGO_TARGET_DIR
# What would speed up the next build of a file that changes takes gigabytes; `scripts/cargo` alone keeps it.
CARGO_INCREMENTAL := 0
export CARGO_INCREMENTAL
CARGO := scripts/cargo
CORES := $(shell nproc)
STEADFAST := $(CARGO_TARGET_DIR)/release/steadfast
HARDEN := $(CARGO_TARGET_DIR)/release/cc

bindir := $(DESTDIR)$(PREFIX)/bin
libdir := $(DESTDIR)$(PREFIX)/lib/steadfast
includedir := $(DESTDIR)$(PREFIX)/include/steadfast
unitdir := $(DESTDIR)$(PREFIX)/lib/systemd/system
ocfdir := $(DESTDIR)$(PREFIX)/lib/ocf/resource.d/steadfast
man1dir := $(DESTDIR)$(PREFIX)/share/man/man1
man5dir := $(DESTDIR)$(PREFIX)/share/man/man5
pcdir := $(DESTDIR)$(PREFIX)/share/pkgconfig
bashdir := $(DESTDIR)$(PREFIX)/share/bash-completion/completions
zshdir := $(DESTDIR)$(PREFIX)/share/zsh/site-functions
fishdir := $(DESTDIR)$(PREFIX)/share/fish/vendor_completions.d
pages := run ps top check cc inject inject-run inject-plan inject-profile inject-replay inject-doctor inject-report inject-compare inject-gate inject-merge
host_pages := demo run check top upgrade analyse compile generate bench campaign

.PHONY: help setup setup-build setup-demo setup-campaign build install uninstall deb test demo demo-run demo-trees demo-cc demo-inject build-kv build-crosscheck demo-kv build-pair demo-pair bench reproduce campaign docs clean build-host demo-host

help:
	@echo 'make build               target/release/steadfast, and the compiler pass of steadfast cc beside it'
	@echo 'make build-kv            target/release/steadfast-kv'
	@echo 'make build-crosscheck    libsteadfast-crosscheck: order and votes for C and C++ services'
	@echo 'make build-pair          target/release/steadfast-pair'
	@echo 'make build-host          target/release/steadfast-host and its components (wasmtime: some minutes)'
	@echo 'make demo                a real program survives a bit flip; what it costs (under a minute)'
	@echo 'make demo PART=NAME      another part: $(filter-out run,$(PARTS))'
	@echo 'make test                every test, as root and as an ordinary user'
	@echo 'make install PREFIX=/usr/local   what is built: binaries, manual, completions, units; make uninstall takes them away'
	@echo 'make deb                 a Debian package of all parts, in build/deb (builds them: some minutes)'
	@echo 'make bench               the numbers of docs/specification.md (hours); one of them: ARGS=micro'
	@echo 'make reproduce           the papers'\'' numbers beside ours and those of this machine, as a page (hours; resumable)'
	@echo 'make campaign            flips drawn at random, by the thousand (hours)'
	@echo 'make setup               what the above need and this machine lacks (called by them)'
	@echo 'make docs                documents that are generated from the code'

setup:
	@scripts/setup test

setup-build:
	@scripts/setup build

setup-demo:
	@scripts/setup demo

setup-campaign:
	@scripts/setup campaign

build: setup-build
	$(CARGO) build --release -p steadfast
	@$(MAKE) --no-print-directory -C cc -j$(CORES) OUT=$(HARDEN)
	@ln -sf steadfast $(STEADFAST)-cc && ln -sf steadfast $(STEADFAST)-c++

# A replicated memcached server.
KV := $(CARGO_TARGET_DIR)/release/steadfast-kv
build-kv:
	@scripts/setup kv
	$(CARGO) build --release -p steadfast-kv

# Order and votes for services in C and C++.
CROSSCHECK := $(CARGO_TARGET_DIR)/release/libsteadfast_crosscheck_c.a
build-crosscheck:
	@scripts/setup kv
	$(CARGO) build --release -p steadfast-crosscheck-c

# One program on two hosts, each with a disk of its own.
PAIR := $(CARGO_TARGET_DIR)/release/steadfast-pair
build-pair:
	@scripts/setup pair
	$(CARGO) build --release -p steadfast-pair

# The host of components, and the components that come with it. Nothing else needs wasmtime, so nothing else builds it.
HOST := $(CARGO_TARGET_DIR)/release/steadfast-host
COMPONENTS := $(CARGO_TARGET_DIR)/release/components
build-host:
	@scripts/setup host
	$(CARGO) build --release --manifest-path crates/host/Cargo.toml
	crates/restart/components/build $(COMPONENTS)
	for core in $(COMPONENTS)/*.core.wasm; do b=$${core%.core.wasm}; $(HOST) compile $$core --wit $$b.wit -o $$b.cwasm || exit; done

# Root need not compile: after `make build`, `sudo make install` only copies.
install:
	@test -x $(STEADFAST) -a -f $(HARDEN)/complete || { echo 'install: $(STEADFAST) or $(HARDEN) is missing'; echo '  fix:   make build'; exit 1; } >&2
	install -D -m 755 $(STEADFAST) $(bindir)/steadfast
	ln -sf steadfast $(bindir)/steadfast-cc
	ln -sf steadfast $(bindir)/steadfast-c++
	install -d $(unitdir) && sed 's|@bindir@|$(PREFIX)/bin|' crates/steadfast/systemd/steadfast-run@.service >$(unitdir)/steadfast-run@.service
	[ ! -x $(KV) ] || install -m 755 $(KV) $(bindir)/steadfast-kv
	[ ! -x $(KV) ] || { install -d $(unitdir) && sed 's|@bindir@|$(PREFIX)/bin|' crates/kv/systemd/steadfast-kv@.service >$(unitdir)/steadfast-kv@.service; }
	[ ! -f $(CROSSCHECK) ] || { install -d $(libdir) $(includedir) $(pcdir) && install -m 644 $(CROSSCHECK) $(libdir)/libsteadfast-crosscheck.a && \
		install -m 644 crates/crosscheck-c/include/steadfast/* $(includedir) && \
		sed 's|@PREFIX@|$(PREFIX)|' crates/crosscheck-c/steadfast-crosscheck.pc.in >$(pcdir)/steadfast-crosscheck.pc; }
	[ ! -x $(PAIR) ] || install -m 755 $(PAIR) $(bindir)/steadfast-pair
	[ ! -x $(PAIR) ] || { install -d $(unitdir) && sed 's|@bindir@|$(PREFIX)/bin|' crates/pair/systemd/steadfast-pair@.service >$(unitdir)/steadfast-pair@.service; }
	[ ! -x $(PAIR) ] || install -D -m 755 crates/pair/pacemaker/steadfast-pair $(ocfdir)/steadfast-pair
	[ ! -x $(HOST) ] || { install -d $(unitdir) && sed 's|@bindir@|$(PREFIX)/bin|' crates/host/systemd/steadfast-host@.service >$(unitdir)/steadfast-host@.service; }
	[ ! -x $(HOST) ] || { install -D -m 755 $(HOST) $(bindir)/steadfast-host && install -d $(libdir)/components && install -m 644 $(COMPONENTS)/*.cwasm $(COMPONENTS)/*.wit $(COMPONENTS)/*.recover.toml $(libdir)/components; }
	install -d $(libdir)/include/steadfast $(includedir)
	install -m 644 $(HARDEN)/steadfast-pass.so $(HARDEN)/libsteadfast-sei.a $(HARDEN)/libsteadfast-level-sei.a $(HARDEN)/libsteadfast-plain.a $(HARDEN)/leave.o $(HARDEN)/hold.o $(HARDEN)/barrier.o $(HARDEN)/late.o $(HARDEN)/steadfast-envelope.o $(libdir)
	install -m 644 cc/include/steadfast/*.h $(libdir)/include/steadfast
	install -m 644 cc/include/steadfast/*.h $(includedir)
	install -m 644 cc/steadfast-toolchain.cmake $(libdir)
	install -m 644 $(HARDEN)/complete $(libdir)
	install -d $(man1dir) $(man5dir) $(pcdir) $(bashdir) $(zshdir) $(fishdir)
	sed 's|@PREFIX@|$(PREFIX)|' cc/steadfast-envelope.pc.in > $(pcdir)/steadfast-envelope.pc
	$(STEADFAST) man policy > $(man5dir)/steadfast-policy.5
	$(STEADFAST) man > $(man1dir)/steadfast.1
	for page in $(pages); do $(STEADFAST) man $$page > $(man1dir)/steadfast-$$page.1 || exit; done
	echo '.so man1/steadfast-cc.1' > $(man1dir)/steadfast-c++.1
	[ ! -x $(HOST) ] || { $(HOST) man > $(man1dir)/steadfast-host.1 && for page in $(host_pages); do $(HOST) man $$page > $(man1dir)/steadfast-host-$$page.1 || exit; done; }
	[ ! -x $(HOST) ] || { $(HOST) completions bash > $(bashdir)/steadfast-host && $(HOST) completions zsh > $(zshdir)/_steadfast-host && $(HOST) completions fish > $(fishdir)/steadfast-host.fish; }
	$(STEADFAST) completions bash > $(bashdir)/steadfast
	$(STEADFAST) completions zsh > $(zshdir)/_steadfast
	$(STEADFAST) completions fish > $(fishdir)/steadfast.fish
	[ ! -x $(KV) ] || { $(KV) man > $(man1dir)/steadfast-kv.1 && $(KV) completions bash > $(bashdir)/steadfast-kv && \
		$(KV) completions zsh > $(zshdir)/_steadfast-kv && $(KV) completions fish > $(fishdir)/steadfast-kv.fish; }
	[ ! -x $(PAIR) ] || { $(PAIR) man > $(man1dir)/steadfast-pair.1 && $(PAIR) completions bash > $(bashdir)/steadfast-pair && \
		$(PAIR) completions zsh > $(zshdir)/_steadfast-pair && $(PAIR) completions fish > $(fishdir)/steadfast-pair.fish; }

uninstall:
	rm -f $(bindir)/steadfast $(bindir)/steadfast-cc $(bindir)/steadfast-c++ $(bindir)/steadfast-kv $(bindir)/steadfast-pair $(bindir)/steadfast-host
	rm -f $(man1dir)/steadfast.1 $(man1dir)/steadfast-c++.1 $(pages:%=$(man1dir)/steadfast-%.1) $(man5dir)/steadfast-policy.5 $(pcdir)/steadfast-envelope.pc $(pcdir)/steadfast-crosscheck.pc
	rm -rf $(libdir) $(includedir)
	rm -f $(unitdir)/steadfast-run@.service $(unitdir)/steadfast-kv@.service $(unitdir)/steadfast-pair@.service $(unitdir)/steadfast-host@.service $(ocfdir)/steadfast-pair
	rm -f $(man1dir)/steadfast-pair.1 $(bashdir)/steadfast-pair $(zshdir)/_steadfast-pair $(fishdir)/steadfast-pair.fish
	rm -f $(man1dir)/steadfast-host.1 $(host_pages:%=$(man1dir)/steadfast-host-%.1)
	rm -f $(bashdir)/steadfast-host $(zshdir)/_steadfast-host $(fishdir)/steadfast-host.fish
	rm -f $(bashdir)/steadfast $(zshdir)/_steadfast $(fishdir)/steadfast.fish
	rm -f $(man1dir)/steadfast-kv.1 $(bashdir)/steadfast-kv $(zshdir)/_steadfast-kv $(fishdir)/steadfast-kv.fish

# A Debian package of all parts: build/deb/steadfast_VERSION_amd64.deb.
deb:
	@scripts/setup deb
	@$(MAKE) --no-print-directory build build-kv build-crosscheck build-pair build-host
	@MAKE='$(MAKE)' scripts/deb

# Builds the command beside the tests.
test: setup
	@$(CARGO) run -q -p steadfast-xtask -- test

# make demo PART=NAME shows one part. demo-NAME sets up and builds what demo/NAME needs and nothing else, then runs it.
PARTS := run trees cc inject kv pair host
PART ?= run
demo:
	@case ' $(PARTS) ' in *' $(PART) '*) ;; *) echo "demo: PART is one of: $(PARTS); found '$(PART)'"; echo '  fix:   make demo PART=run'; exit 64 ;; esac >&2
	@$(MAKE) --no-print-directory demo-$(PART)

demo-run: setup-demo build
	@demo/run
	@others='$(filter-out run,$(PARTS))'; [ -z "$$others" ] || printf '\nmake demo PART=NAME shows another part: %s\n' "$$others"

demo-trees:
	@scripts/setup demo-trees
	@$(MAKE) --no-print-directory build
	@demo/trees

demo-cc:
	@scripts/setup demo-cc
	@$(MAKE) --no-print-directory build
	$(CARGO) build --release -p steadfast-workloads
	@demo/cc

demo-inject: setup-demo build
	@demo/inject

demo-kv:
	@scripts/setup demo-kv
	@$(MAKE) --no-print-directory build-kv
	@demo/kv

demo-pair:
	@scripts/setup demo-pair
	@$(MAKE) --no-print-directory build-pair
	@demo/pair

demo-host: build-host
	@demo/host

# All of it takes hours; ARGS="micro" is one command of it, ARGS="--help" lists them.
BENCH := $(CARGO) run -q --release -p steadfast-bench --
bench: setup build
ifdef ARGS
	$(BENCH) $(ARGS)
else
	@mkdir -p build/bench
	for what in start sei micro memory touch repair spec; do $(BENCH) $$what --json build/bench/$$what.json; [ $$? -le 1 ] || exit; done
	$(BENCH) model --spec build/bench/spec.json --micro build/bench/micro.json --json build/bench/model.json
endif

# The papers' values beside the published ones and those of this machine, as a page: build/reproduce/index.html.
reproduce: setup build
	$(BENCH) reproduce $(ARGS)

# Ten thousand flips and more of each type, over eight programs, then in the agent, the log and the control block, then in what stands
# around the replicas:
# hours, resumable (a call goes on where the last one stopped), progress on standard error, tables with intervals; at the end the tests
# that Python, bash, make, GNU programs, servers and Go come with, bare and protected, Debian's tests of dnsmasq, plain and hardened, and a
# campaign as an array job of Slurm; the last three need root. ARGS="flips --help" is one command of bench, with flags of its own.
FLIPS := $(BENCH) flips --jobs 3 --out build/campaign
campaign: setup-campaign build
ifdef ARGS
	$(BENCH) $(ARGS)
else
	@mkdir -p build/campaign
	$(FLIPS) --runs 1260 --seed 11 --json build/campaign/flips.json
	$(FLIPS) --victim agent,log --runs 500 --seed 7 --json build/campaign/flips-agent.json
	$(FLIPS) --victim processes --runs 300 --seed 41 --json build/campaign/flips-processes.json
	for n in 1 3; do $(FLIPS) --runs 150 --seed 12 -n $$n --json build/campaign/flips-n$$n.json || exit; done
	rm -rf build/campaign/exact
	$(STEADFAST) inject plan --quiet --out build/campaign/exact --runs 250 --seed 3 -- gzip -c $(CURDIR)/README.md
	$(BENCH) doctor build/campaign/exact --json build/campaign/doctor.json
	KILLS=3000 KILLS_SEED=23 $(CARGO) test -p steadfast-tests -- faults::pairs_of_kills
	TREES=3000 TREES_SEED=13 $(CARGO) test -p steadfast-tests -- faults::in_children::drawn
	TREES_S=3600 TREES_SEED=17 $(CARGO) test -p steadfast-tests -- faults::in_children::drawn
	SPAWNS=100000 $(CARGO) test -p steadfast-tests -- faults::in_children::spawns
	AROUND=2000 AROUND_SEED=29 $(CARGO) test -p steadfast-tests -- faults::around
	$(BENCH) sei-tables table2 --variants mc-sei,mc-sei-level --faults sei --out build/campaign/sei-tables
	$(BENCH) sei-tables table2 --variants mc-sei-without-inputs,mc-sei-without-outputs,mc-sei-without-frames,mc-sei-without-locks --faults sei --runs 2000 --out build/campaign/sei-tables
	$(BENCH) server-flips --flips 2500 --seed 3 --lines build/campaign/server-flips.jsonl --json build/campaign/server-flips.json
	@$(MAKE) --no-print-directory build-host
	crates/host/container/try
	$(BENCH) host --flips 10000 --flips-only --lines build/campaign/host-flips.jsonl --json build/campaign/host.json
	STEADFAST_REBOOTS=100000 $(CARGO) test --manifest-path crates/host/Cargo.toml -p steadfast-restart --test leaks -- --nocapture
	PAIR_INJECTIONS=3000 PAIR_SEED=100 $(CARGO) test -p steadfast-pair --test pair -- --nocapture drawn_at_random
	PAIR_JOINS=600 $(CARGO) test -p steadfast-pair --test pair -- --nocapture around::
	STEADFAST_ALL=1 PAIR_MOMENTS=100 PAIR_FIO=100 PAIR_STRIKES=100 $(CARGO) test -p steadfast-pair --test pair -- moments:: fio_finds postgres::
	@$(MAKE) --no-print-directory build-pair
	$(BENCH) pair --lost 500
	$(BENCH) pair --reads 10000000
	@$(MAKE) --no-print-directory build-kv
	for s in 1 2 3 4; do f=build/campaign/kv-live-$$s.json; [ -f $$f ] || $(BENCH) kv --only live --strikes 6000 --seed $$s --json $$f || exit; done
	for s in 1 2 3 4; do f=build/campaign/kv-sim-$$s.json; [ -f $$f ] || $(BENCH) kv --only simulated --seed $$s --json $$f || exit; done
	f=build/campaign/kv-quiet.json; [ -f $$f ] || $(BENCH) kv --only quiet --workers 1,2,4 --json $$f
	KV_REQUESTS=100000000 $(CARGO) test --release -p steadfast-kv --bin steadfast-kv -- raise_no_false_alarm
	$(KV) --local 3 --port 21411 & kv=$$!; sleep 3; \
		$(CARGO) run -q --release -p steadfast-workloads -- server suite --at 127.0.0.1:21411; rc=$$?; kill -INT $$kv; wait $$kv; exit $$rc
	STEADFAST_ALL=1 $(CARGO) test -q -p steadfast-crosscheck --test model
	GROUP_SEEDS=200 $(CARGO) test -p steadfast-group --lib driver::tests
	KV_HISTORIES=40 KV_HISTORY_S=30 KV_SEED=1000 $(CARGO) test -p steadfast-kv --test group -- --nocapture history::every
	$(BENCH) python --out build/campaign --json build/campaign/python.json || [ $$? -eq 1 ]
	for suite in gnu trees servers autopkgtest; do $(BENCH) suite $$suite --out build/campaign/$$suite --json build/campaign/$$suite.json || [ $$? -eq 1 ] || exit; done
	$(BENCH) slurm --out build/campaign
	STEADFAST_ALL=1 $(CARGO) test -q -p steadfast-tests -- harden::
	STEADFAST_ALL=1 $(CARGO) test -q -p steadfast-tests -- faults::
	STEADFAST_ALL=1 $(CARGO) test -q -p steadfast-tests -- guests::
	STEADFAST_CSMITH=300 $(CARGO) test -q -p steadfast-tests -- harden::csmith
endif

# The reference of flags is written by the tests that compare it with the code.
FLAGS := the_reference_of_flags_is_that_of_the_code
docs: setup-build
	$(CARGO) run -q -p steadfast-xtask -- docs
	STEADFAST_DOCS=write $(CARGO) test -q -p steadfast -p steadfast-kv -p steadfast-pair --bins -- $(FLAGS)
	STEADFAST_DOCS=write $(CARGO) test -q --manifest-path crates/host/Cargo.toml -p steadfast-host --bins -- $(FLAGS)

clean:
	$(CARGO) clean
