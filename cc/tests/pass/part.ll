; Parts of a word keep the low bits of an address that is not a multiple of their size: 4 bytes bits 0 and 1, 2 bytes bit 0.
; CHECK: define hidden void @four.sf(
; CHECK: and i64 %1, -5
; CHECK: call __sf_slow_part
; CHECK: store i32 %v, ptr %to
; CHECK: call __sf_check
; CHECK: define hidden void @two.sf(
; CHECK: and i64 %1, -7
; CHECK: define hidden void @one.sf(
; CHECK: and i64 %1, -8
define void @four(ptr %to, i32 %v) {
  store i32 %v, ptr %to, align 4
  ret void
}
define void @two(ptr %to, i16 %v) {
  store i16 %v, ptr %to, align 2
  ret void
}
define void @one(ptr %to, i8 %v) {
  store i8 %v, ptr %to, align 1
  ret void
}
