; With --protect=sei a handler has one set of arguments, and stores that are looked up with their neighbours keep their own addresses: both checks are
; beyond the paper's rules. The look before the first of them and behind the last stays (R2, R6), and the module says its level.
; POLICY: protect sei
; POLICY: local-handler handle
; CHECK: @__sf_level = private constant i64 1, section "sf_levels"
; CHECK: begin:
; CHECK: call i32 @__sf_begin(
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0", "=r,i"(ptr @handle.sf)
; CHECK: (ptr %to)
; CHECK: call void @__sf_mid(
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0", "=r,i"(ptr @handle.sf)
; CHECK: (ptr %to)
; CHECK: call void @__sf_end(
; CHECK: define hidden void @handle.sf(
; CHECK: call __sf_slow8
; CHECK: store i32 1, ptr %to
; CHECK: store i32 2, ptr %more
; CHECK: call __sf_check
; NEVER: __sf_astray
; NEVER: store volatile ptr
define void @handle(ptr %to) nounwind {
  store i32 1, ptr %to, align 8
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
