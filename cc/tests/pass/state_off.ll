; Without --state nothing of it is there.
; CHECK: define hidden void @move.sf(
; NEVER: __sf_places
; NEVER: __sf_state
; NEVER: sf_objects
define void @move(ptr %from, ptr %to) {
  %v = load i64, ptr %from, align 8
  store i64 %v, ptr %to, align 8
  ret void
}
