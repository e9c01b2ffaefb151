; Loops whose stores are looked up word by word as ever: there may be another thread's bytes between them, or another thread that writes what comes
; next while the loop runs, or nothing is won.
; CHECK: define hidden void @gaps.sf(
; CHECK: call __sf_slow8
; CHECK: define hidden void @some.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @calls.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @is_volatile.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @asks.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @fence.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @down.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @three.sf(
; CHECK: call __sf_slow_part
; CHECK: define hidden void @twice.sf(
; CHECK: call __sf_slow_part
; NEVER: @__sf_range_next
; POLICY: pure reads
declare void @reads(ptr)
; Every second word.
define void @gaps(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr { i64, i64 }, ptr %to, i64 %i
  store i64 %i, ptr %at, align 8
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; Not in each round.
define void @some(ptr %to, ptr %from, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %from.i = getelementptr i8, ptr %from, i64 %i
  %b = load i8, ptr %from.i
  %to.i = getelementptr i8, ptr %to, i64 %i
  %is.set = icmp eq i8 %b, 0
  br i1 %is.set, label %put, label %more
put:
  store i8 1, ptr %to.i
  br label %more
more:
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; What is called may wait, or end the event.
define void @calls(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 1, ptr %at
  call void @reads(ptr %at)
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
define void @is_volatile(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store volatile i8 1, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; Another thread says when the next byte is this one's.
define void @asks(ptr %to, ptr %ready, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %is.ready = load volatile i8, ptr %ready
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %is.ready, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
define void @fence(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  fence acquire
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 1, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
define void @down(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ %n, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 1, ptr %at
  %next = add nsw i64 %i, -1
  %is.last = icmp eq i64 %next, 0
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; Three rounds: a piece costs more.
define void @three(ptr %to, i8 %v) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 %v, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, 3
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; The same byte by two stores of a round.
define void @twice(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 1, ptr %at
  store i8 2, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
