; Calls by class.
; POLICY: pure reads
; POLICY: once asks
; POLICY: defer tells
; POLICY: native gives own_gives
; POLICY: wrap old new
; CHECK: define hidden i64 @calls.sf(
; CHECK: call i64 @reads(i64 %v)
; CHECK: call i32 @__sf_once(
; CHECK: call i64 @asks(i64
; CHECK: call void @__sf_once_done(
; CHECK: call void @__sf_defer(
; CHECK: call i64 @own_gives(i64 %v)
; CHECK: call i64 @new.sf(i64 %v)
; CHECK: call i64 @inner.sf(i64 %v)
; NEVER: @gives.sf
declare i64 @reads(i64)
declare i64 @asks(i64)
declare void @tells(i64)
declare i64 @gives(i64)
declare i64 @old(i64)
define i64 @new(i64 %v) {
  ret i64 %v
}
define i64 @inner(i64 %v) {
  ret i64 %v
}
define i64 @calls(i64 %v) {
  %a = call i64 @reads(i64 %v)
  %b = call i64 @asks(i64 %a)
  call void @tells(i64 %b)
  %c = call i64 @gives(i64 %v)
  %d = call i64 @old(i64 %v)
  %e = call i64 @inner(i64 %v)
  %f = add i64 %c, %d
  %g = add i64 %e, %f
  ret i64 %g
}
