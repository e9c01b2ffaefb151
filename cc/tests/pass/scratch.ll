; What dies with the frame is not logged; what is ignored neither.
; POLICY: ignore counter
; CHECK: define hidden i64 @frame.sf(
; NEVER: call __sf_slow8
; NEVER: call void @__sf_log(
; CHECK: store i64 %v, ptr %own
@counter = global i64 0
define i64 @frame(i64 %v) {
  %own = alloca i64
  store i64 %v, ptr %own
  store i64 %v, ptr @counter
  %back = load i64, ptr %own
  ret i64 %back
}
