; Bulk operations are ranges: short ones stay where they are, with a call on either side, long ones become the runtime's.
; CHECK: define hidden void @short.sf(
; CHECK: call void @__sf_log(ptr %to, i64 24)
; CHECK: call void @llvm.memcpy
; CHECK: call void @__sf_logged(ptr %to, i64 24)
; CHECK: define hidden void @long.sf(
; CHECK: call ptr @__sf_memcpy(ptr %to, ptr %from, i64 %n)
; CHECK: call ptr @__sf_memmove(ptr %to, ptr %from, i64 %n)
; CHECK: call ptr @__sf_memset(ptr %to, i32 0, i64 %n)
; CHECK: define hidden void @narrow.sf(
; CHECK: call void @__sf_log(ptr %to, i64 8)
; CHECK: store i64 1, ptr %to, align 1
; CHECK: call void @__sf_logged(ptr %to, i64 8)
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define void @short(ptr %to, ptr %from) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 24, i1 false)
  ret void
}
define void @long(ptr %to, ptr %from, i64 %n) {
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  call void @llvm.memmove.p0.p0.i64(ptr %to, ptr %from, i64 %n, i1 false)
  call void @llvm.memset.p0.i64(ptr %to, i8 0, i64 %n, i1 false)
  ret void
}
define void @narrow(ptr %to) {
  store i64 1, ptr %to, align 1
  ret void
}
