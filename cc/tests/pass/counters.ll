; Outside handlers, a counter that begins at a constant and its copy stay two, also for who makes loops cheaper.
; POLICY: between x
; THEN: function(early-cse,loop(indvars),loop(loop-reduce))
; CHECK: define i64 @count(
; CHECK: asm "", "=r,0"(i64 0)
; CHECK: %i = phi i64 [ 0, %entry ]
; CHECK: = call i64 asm "", "=r,0"(i64 %
; CHECK: = add i64 %
; CHECK: %next = add i64 %i, 1
; CHECK: define hidden i64 @count.sf(
target triple = "x86_64-pc-linux-gnu"
define i64 @count(ptr %p) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i32, ptr %p, i64 %i
  %v = load i32, ptr %at, align 4
  %next = add i64 %i, 1
  %more = icmp ne i32 %v, 77
  br i1 %more, label %loop, label %done
done:
  ret i64 %next
}
