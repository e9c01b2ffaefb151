; A handler runs twice, or once where one is running; each run is the clone, of which optimisers that come later do not know, with arguments
; that were kept for that run.
; POLICY: local-handler handle
; CHECK: @__sf_level = private constant i64 2, section "sf_levels"
; CHECK: define i32 @handle(i32 %v)
; CHECK: nested:
; CHECK: call i32 @handle.sf(i32 %v)
; CHECK: store volatile i32 %v, ptr
; CHECK: = xor i32 %v, -1
; CHECK: store volatile i32 %
; CHECK: begin:
; CHECK: call i32 @__sf_begin(ptr @__sf_handler)
; CHECK: label %second, label %first
; CHECK: first:
; CHECK: asm sideeffect "leaq ${1:c}(%rip), $0", "=r,i"(ptr @handle.sf)
; CHECK: = call i32 %
; CHECK: (i32 %
; CHECK: call void @__sf_mid(
; CHECK: br label %second
; CHECK: second:
; CHECK: load volatile i32, ptr
; CHECK: = xor i32 %
; CHECK: = call i32 %
; CHECK: (i32 %
; CHECK: call void @__sf_end(
; CHECK: label %done
; CHECK: define hidden i32 @handle.sf(i32 %v)
; CHECK: noinline nounwind "frame-pointer"="all"
; CHECK: noredzone
define i32 @handle(i32 %v) nounwind {
  ret i32 %v
}
