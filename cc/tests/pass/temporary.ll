; Structures that the compiler makes in passing: holes (here behind the byte) are zeroed, at the beginning of each life.
; CHECK: define void @passed(
; CHECK: call void @llvm.lifetime.start
; CHECK: call void @llvm.memset.p0.i64(ptr align 8 %t, i8 0, i64 24, i1 false), !annotation
; CHECK: call void @make(
; CHECK: define void @whole(
; CHECK: call void @make(
; CHECK: define hidden void @passed.sf(
%field = type { ptr, i64, i8 }
%pair = type { i64, i64 }
define void @passed(ptr %to) {
  %t = alloca %field, align 8
  call void @llvm.lifetime.start.p0(i64 24, ptr %t)
  call void @make(ptr %t)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %t, i64 24, i1 false)
  call void @llvm.lifetime.end.p0(i64 24, ptr %t)
  ret void
}
define void @whole(ptr %to) {
  %p = alloca %pair, align 8
  call void @make(ptr %p)
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %p, i64 16, i1 false)
  ret void
}
declare void @make(ptr)
