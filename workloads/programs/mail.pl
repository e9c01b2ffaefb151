# A day of a mail server in one process: makes messages, parses them, scores them, sorts them.
#
# Stands for SPEC's perlbench (SpamAssassin, mail sorting, diffs): hashes, regular expressions,
# sort, sprintf, closures, string building. Argument: number of messages. All randomness is a
# linear congruential generator, all output in sorted order, so two runs print the same bytes.
use strict;
use warnings;

my $count = shift // 1000;
my $state = 12345;

sub below {
    my ($bound) = @_;
    $state = ($state * 1103515245 + 12345) & 0x7fffffff;
    return int($state / 65536) % $bound;
}

my @syllables = qw(an be ca do el fi ga he in jo ke la me no or pa re sa te un ve wa);
my @vocabulary = map { join '', map { $syllables[below(scalar @syllables)] } 0 .. 1 + below(3) } 1 .. 3000;
my @bait = ('act now', 'free money', 'no risk', 'limited offer', 'dear friend', 'click here');

sub message {
    my ($id) = @_;
    my $from = sprintf '%s@%s.example', $vocabulary[below(400)], $vocabulary[below(60)];
    my $body = join ' ', map { $vocabulary[(below(55) * below(55)) % 3000] } 1 .. 60 + below(120);
    $body .= " $bait[below(scalar @bait)]" for 1 .. below(4);
    $body =~ s/((?:\S+ ){12})/$1\n/g;
    my $subject = ucfirst $vocabulary[below(300)] . ' ' . $vocabulary[below(300)];
    return "From: $from\nDate: day " . below(366) . "\nMessage-Id: <$id\@local>\nSubject: $subject\n\n$body\n";
}

my @rules = (
    [ 'bait',    2.5, sub { my $n = () = $_[0]{body} =~ /\b(?:act now|free money|no risk|click here)\b/g; $n } ],
    [ 'shout',   1.0, sub { my $n = () = $_[0]{body} =~ /[A-Z]{2,}/g; $n } ],
    [ 'repeat',  0.5, sub { my $n = () = $_[0]{body} =~ /\b(\w+)\s+\1\b/g; $n } ],
    [ 'long',    0.1, sub { my $n = () = $_[0]{body} =~ /\w{9,}/g; $n } ],
    [ 'subject', 0.7, sub { $_[0]{subject} =~ /^(?:An|Be|Ca).*(?:la|me)/ ? 1 : 0 } ],
);

my (%words, %senders, %by_day, @scored);
for my $id (1 .. $count) {
    my $text = message($id);
    my ($head, $body) = split /\n\n/, $text, 2;
    my %field = map { /^([\w-]+):\s*(.*)$/ ? (lc $1 => $2) : () } split /\n/, $head;
    my $mail = { id => $id, body => $body, subject => $field{subject} };
    my $score = 0;
    $score += $_->[1] * $_->[2]->($mail) for @rules;
    $words{ lc $_ }++ for $body =~ /\w+/g;
    $senders{ $field{from} } += $score;
    push @{ $by_day{ $field{date} } }, $id;
    (my $digest = $body) =~ tr/a-z/n-za-m/;
    push @scored, [ $score, $id, substr($digest, 0, 40) =~ s/\s+/ /gr ];
}

my @top = (sort { $b->[0] <=> $a->[0] || $a->[1] <=> $b->[1] } @scored)[ 0 .. 19 ];
printf "%7.2f %6d %s\n", @$_ for @top;
my @frequent = (sort { $words{$b} <=> $words{$a} || $a cmp $b } keys %words)[ 0 .. 49 ];
printf "%-16s %d\n", $_, $words{$_} for @frequent;
my @senders = sort { $senders{$b} <=> $senders{$a} || $a cmp $b } keys %senders;
printf "%-32s %.2f\n", $_, $senders{$_} for @senders[ 0 .. 19 ];
for my $day (sort keys %by_day) {
    my @ids = @{ $by_day{$day} };
    printf "%s: %d messages, first %d, last %d\n", $day, scalar @ids, $ids[0], $ids[-1];
}
