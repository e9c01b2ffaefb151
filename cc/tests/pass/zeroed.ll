; Locals that the compiler zeroes: large ones only in runs of a handler, small ones and what the program zeroes itself always.
; CHECK: define void @large(
; CHECK: %1 = call ptr @llvm.threadlocal.address.p0(ptr @__sf_tls)
; CHECK: icmp ne i64
; CHECK: br i1
; CHECK: call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 4096
; CHECK: define void @small(
; CHECK: call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 64
; CHECK: define void @own(
; CHECK: call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 4096
; NEVER: call ptr @__sf_memset
define void @large() {
  %a = alloca [4096 x i8], align 16
  call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 4096, i1 false), !annotation !0
  call void @use(ptr %a)
  ret void
}
define void @small() {
  %a = alloca [64 x i8], align 16
  call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 64, i1 false), !annotation !0
  call void @use(ptr %a)
  ret void
}
define void @own() {
  %a = alloca [4096 x i8], align 16
  call void @llvm.memset.p0.i64(ptr align 16 %a, i8 0, i64 4096, i1 false)
  call void @use(ptr %a)
  ret void
}
declare void @llvm.memset.p0.i64(ptr nocapture writeonly, i8, i64, i1 immarg)
declare void @use(ptr)
!0 = !{!"auto-init"}
