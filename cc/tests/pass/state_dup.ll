; The run's own copy: loads and stores of a clone go to the address plus what this run's copies lie away; the log goes by
; the object's address. A variable with a copy needs no question.
; POLICY: state dup
; POLICY: dup kept
; CHECK: @kept = global i64 0, section "sf_dup", align 64
; CHECK: define hidden void @move.sf(ptr %from, ptr %to)
; CHECK: load i64, ptr @__sf_places
; CHECK: %6 = shl i64 %5, 36
; CHECK: lshr i64 %7, 43
; CHECK: icmp eq i64 %8, 2
; CHECK: icmp ult i64 %10, %1
; CHECK: %13 = select i1 %12, i64 %6, i64 0
; CHECK: %14 = getelementptr i8, ptr %from, i64 %13
; CHECK: %v = load i64, ptr %14
; CHECK: %22 = getelementptr i8, ptr %to, i64 %21
; CHECK: ptrtoint ptr %to to i64
; CHECK: call __sf_slow8
; CHECK: store i64 %v, ptr %22
; CHECK: getelementptr i8, ptr @kept, i64 %6
; NEVER: call void @__sf_state_touch(
@kept = global i64 0
define void @move(ptr %from, ptr %to) {
  %v = load i64, ptr %from, align 8
  store i64 %v, ptr %to, align 8
  store i64 %v, ptr @kept, align 8
  ret void
}
