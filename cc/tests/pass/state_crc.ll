; Checksums: a cell is looked at before it is read or written; addresses stay as they are.
; POLICY: state crc
; POLICY: crc kept
; CHECK: @kept = global i64 0, section "sf_crc", align 64
; CHECK: define hidden void @move.sf(ptr %from, ptr %to)
; CHECK: icmp eq i64 %4, 3
; CHECK: call void @__sf_state_touch(ptr %from, i64 8)
; CHECK: load i64, ptr %from
; CHECK: call void @__sf_state_touch(ptr %to, i64 8)
; CHECK: store i64 %v, ptr %to
; CHECK: call void @__sf_state_touch(ptr @kept, i64 8)
; CHECK: store i64 %v, ptr @kept
; NEVER: select i1
@kept = global i64 0
define void @move(ptr %from, ptr %to) {
  %v = load i64, ptr %from, align 8
  store i64 %v, ptr %to, align 8
  store i64 %v, ptr @kept, align 8
  ret void
}
