# A campus network under load: a core ring, eight departments, TCP flows and web-like bursts.
#
# Stands for SPEC's omnetpp (a large Ethernet): an event queue, many small objects, pointer
# chasing. Argument: seconds of simulated time. All randomness comes from seeded generators.
set duration [lindex $argv 0]
set ns [new Simulator]
ns-random 1
$defaultRNG seed 1

set core_count 8
set hosts_per_core 12
for {set c 0} {$c < $core_count} {incr c} { set core($c) [$ns node] }
for {set c 0} {$c < $core_count} {incr c} {
    $ns duplex-link $core($c) $core([expr ($c + 1) % $core_count]) 100Mb 2ms DropTail
    $ns queue-limit $core($c) $core([expr ($c + 1) % $core_count]) 60
}
for {set c 0} {$c < $core_count} {incr c} {
    for {set h 0} {$h < $hosts_per_core} {incr h} {
        set host($c,$h) [$ns node]
        $ns duplex-link $host($c,$h) $core($c) 10Mb 1ms RED
    }
}

set pick [new RNG]
$pick seed 7
set gap [new RandomVariable/Exponential]
$gap set avg_ 0.4
$gap use-rng $pick

set flows {}
for {set c 0} {$c < $core_count} {incr c} {
    for {set h 0} {$h < $hosts_per_core} {incr h} {
        set to_c [expr int([$pick uniform 0 $core_count])]
        set to_h [expr int([$pick uniform 0 $hosts_per_core])]
        if {$to_c == $c && $to_h == $h} { set to_h [expr ($to_h + 1) % $hosts_per_core] }
        set tcp [new Agent/TCP/Newreno]
        $tcp set packetSize_ 1000
        set sink [new Agent/TCPSink/DelAck]
        $ns attach-agent $host($c,$h) $tcp
        $ns attach-agent $host($to_c,$to_h) $sink
        $ns connect $tcp $sink
        if {$h % 3 == 0} {
            set app [new Application/FTP]
            $app attach-agent $tcp
        } else {
            set app [new Application/Traffic/Pareto]
            $app set burst_time_ 300ms
            $app set idle_time_ 200ms
            $app set rate_ 4Mb
            $app set shape_ 1.5
            $app set packetSize_ 1000
            $app attach-agent $tcp
        }
        $ns at [expr 0.1 + [$gap value]] "$app start"
        lappend flows $tcp
    }
}

proc report {} {
    global flows
    foreach tcp $flows {
        puts "[$tcp set ndatapack_] sent, [$tcp set nrexmitpack_] again, [$tcp set ack_] acknowledged, window [$tcp set cwnd_]"
    }
    exit 0
}
$ns at $duration "report"
$ns run
