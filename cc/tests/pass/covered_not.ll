; These are looked up: behind a call that may wait, in another module, through a pointer, or further down; where the first is not on each way; where not
; all bytes are logged; where a way round a loop leads past such a call.
; CHECK: define hidden void @other_module.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @pointer.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @further_down.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @one_way.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @beyond.sf(
; CHECK: call ptr @__sf_memset(
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @round.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @ignored_between.sf(
; CHECK: store i64 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; NEVER: __sf_astray
define void @other_module(ptr %to) {
  store i64 1, ptr %to, align 8
  call void @waits()
  store i32 2, ptr %to, align 8
  ret void
}
define void @pointer(ptr %to, ptr %f) {
  store i64 1, ptr %to, align 8
  call void %f()
  store i32 2, ptr %to, align 8
  ret void
}
define void @further_down(ptr %to) {
  store i64 1, ptr %to, align 8
  call void @inner()
  store i32 2, ptr %to, align 8
  ret void
}
define void @one_way(ptr %to, i1 %more) {
  br i1 %more, label %yes, label %no
yes:
  store i64 1, ptr %to, align 8
  br label %no
no:
  store i32 2, ptr %to, align 8
  ret void
}
define void @beyond(ptr %to) {
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 96, i1 false)
  %more = getelementptr i8, ptr %to, i64 96
  store i32 2, ptr %more, align 4
  ret void
}
define void @round(ptr %to, i32 %n) {
entry:
  store i64 1, ptr %to, align 8
  br label %loop
loop:
  %i = phi i32 [ 0, %entry ], [ %next, %loop ]
  store i32 2, ptr %to, align 8
  call void @waits()
  %next = add i32 %i, 1
  %is.last = icmp eq i32 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
define void @ignored_between(ptr %to) {
  store i64 1, ptr %to, align 8
  call void @sf_ignore(ptr %to, i64 8)
  store i32 2, ptr %to, align 8
  ret void
}
define void @inner() noinline {
  call void @waits()
  ret void
}
declare void @waits()
declare void @sf_ignore(ptr, i64)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
