; A loop whose store goes from one place to the next fills a range: no look-up of words, one comparison with where the last store has ended and
; one with the end of the open piece; closed where the loop is left, on either way.
; CHECK: define hidden void @bytes.sf(
; CHECK: call ptr asm "", "=r,0"(ptr %to.i)
; CHECK: icmp ugt i64
; CHECK: call { i64, i64 } @__sf_range_next(
; CHECK: store i8 %b, ptr
; CHECK: call i64 asm sideeffect "", "=r,0,~{memory}"(i64
; CHECK: call void @__sf_range_end(
; CHECK: define hidden void @fields.sf(
; CHECK: call { i64, i64 } @__sf_range_next(
; NEVER: call void asm sideeffect "call __sf_slow
define void @bytes(ptr %to, ptr %from, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %more ]
  %from.i = getelementptr i8, ptr %from, i64 %i
  %b = load i8, ptr %from.i
  %to.i = getelementptr i8, ptr %to, i64 %i
  store i8 %b, ptr %to.i
  %is.end = icmp eq i8 %b, 0
  br i1 %is.end, label %done, label %more
more:
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
; Parts of a structure that together are all of it, in any order.
define void @fields(ptr %to, i32 %v, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr { i32, i16, i16 }, ptr %to, i64 %i
  %two = getelementptr i8, ptr %at, i64 6
  store i16 7, ptr %two
  store i32 %v, ptr %at
  %one = getelementptr i8, ptr %at, i64 4
  store i16 8, ptr %one
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
