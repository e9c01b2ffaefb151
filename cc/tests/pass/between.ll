; Outside handlers everything is computed twice, from copies that the optimiser cannot see through, and compared before it
; is stored, passed on, branched on or returned; loads that differ are read again. What a handler reaches is left alone, and
; nothing with an effect is done twice.
; POLICY: between x
; POLICY: handler h
; CHECK: define i32 @all(
; CHECK: call ptr asm "", "=r,0"(ptr %p)
; CHECK: phi i32 [ 0, %entry ]
; CHECK: %v = load i32, ptr %at
; CHECK: load volatile i32
; CHECK: call i64 @__sf_between_again(ptr %at
; CHECK: call void @__sf_between_differ(
; CHECK: store i32 %sum, ptr %at
; CHECK: icmp slt i32 %next, %n
; CHECK: icmp slt i32
; CHECK: call void @__sf_between_differ(
; CHECK: br i1 %more
; CHECK: call void @__sf_between_differ(
; CHECK: %r = call i32 %f(i32 %next)
; CHECK: call void @__sf_between_differ(
; CHECK: ret i32 %r
; CHECK: define i32 @quiet(
; CHECK: load volatile i32, ptr @racy
; CHECK: ret i32
; CHECK: define hidden i32 @h.sf(
; CHECK: ret i32 %twice
; NEVER: volatile i32, ptr %q
@racy = global i32 0
define i32 @all(ptr %p, i32 %n, ptr %f) {
entry:
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i32, ptr %p, i32 %i
  %v = load i32, ptr %at, align 4
  %sum = add i32 %v, %n
  store i32 %sum, ptr %at, align 4
  %next = add i32 %i, 1
  %more = icmp slt i32 %next, %n
  br i1 %more, label %loop, label %done
done:
  %r = call i32 %f(i32 %next)
  ret i32 %r
}
define i32 @quiet(float %x) {
  %v = load volatile i32, ptr @racy, align 4
  ret i32 0
}
define i32 @h(ptr %q) {
  %v = load i32, ptr %q, align 4
  %twice = mul i32 %v, 2
  ret i32 %twice
}
