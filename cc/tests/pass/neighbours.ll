; Stores of one block to parts of one word that together are all of it, or an aligned half, are looked up as one, before the first and behind the last;
; each takes its address from one register, which is compared behind them.
; CHECK: define hidden void @two_halves.sf(
; CHECK: call i64 asm "", "=r,0"(i64
; CHECK: call __sf_slow8
; CHECK: store i32 1
; CHECK: store i32 2
; CHECK: call __sf_check
; CHECK: call i64 asm sideeffect "", "=r,0,~{memory}"(i64
; CHECK: call __sf_astray
; CHECK: define hidden void @twice.sf(
; CHECK: call __sf_slow8
; CHECK: store i64 %v
; CHECK: store i16 3
; CHECK: call __sf_check
; CHECK: define hidden void @bytes.sf(
; CHECK: call __sf_slow_part
; CHECK: store i8 1
; CHECK: store i8 2
; CHECK: call __sf_check
; CHECK: ret void
define void @two_halves(ptr %to) {
  store i32 1, ptr %to, align 8
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
; A store that another one of the same word precedes.
define void @twice(ptr %to, i64 %v) {
  store i64 %v, ptr %to, align 8
  %part = getelementptr i8, ptr %to, i64 2
  store i16 3, ptr %part, align 2
  ret void
}
define void @bytes(ptr %to) {
  %more = getelementptr i8, ptr %to, i64 1
  store i8 1, ptr %more, align 1
  store i8 2, ptr %to, align 2
  ret void
}
