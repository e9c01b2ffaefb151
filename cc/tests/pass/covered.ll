; A store is not looked up where what dominates it has logged its bytes: a fill of known length, a store in another block, one before a call that returns to
; the same event. It takes a register of its own, which is compared behind it with the address that was logged.
; CHECK: define hidden void @cleared.sf(
; CHECK: call i64 asm sideeffect "", "=r,0"(i64
; CHECK: call ptr @__sf_memset(
; CHECK: call i64 asm "", "=r,0"(i64
; CHECK: store i32 1
; CHECK: call i64 asm sideeffect "", "=r,0,~{memory}"(i64
; CHECK: call __sf_astray
; CHECK: store i16 2
; CHECK: call __sf_astray
; CHECK: define hidden void @behind_calls.sf(
; CHECK: call __sf_slow8
; CHECK: store i64 3
; CHECK: call void @inner.sf()
; CHECK: store i32 4
; CHECK: call __sf_astray
; CHECK: define hidden void @in_a_loop.sf(
; CHECK: call __sf_slow8
; CHECK: store i32 %i
; CHECK: call __sf_astray
; CHECK: ret void
; NEVER: __sf_slow_part
; POLICY: pure reads
define void @cleared(ptr %to, i1 %more) {
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 96, i1 false)
  %a = getelementptr i8, ptr %to, i64 8
  store i32 1, ptr %a, align 8
  br i1 %more, label %yes, label %no
yes:
  %b = getelementptr i8, ptr %to, i64 94
  store i16 2, ptr %b, align 2
  ret void
no:
  ret void
}
define void @behind_calls(ptr %to) {
  store i64 3, ptr %to, align 8
  %v = call i64 @reads(ptr %to)
  call void @inner()
  %part = getelementptr i8, ptr %to, i64 4
  store i32 4, ptr %part, align 4
  ret void
}
define void @in_a_loop(ptr %to, i32 %n) {
entry:
  store i64 0, ptr %to, align 8
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  store i32 %i, ptr %to, align 8
  call void @inner()
  %next = add i32 %i, 1
  %is.last = icmp eq i32 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
define void @inner() noinline {
  ret void
}
declare i64 @reads(ptr)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
