; A handler runs twice, or once where one is running; each run is the clone.
; POLICY: local-handler handle
; CHECK: define i32 @handle(i32 %v)
; CHECK: nested:
; CHECK: call i32 @handle.sf(i32 %v)
; CHECK: begin:
; CHECK: call i32 @__sf_begin(ptr @__sf_handler)
; CHECK: label %second, label %first
; CHECK: first:
; CHECK: call i32 @handle.sf(i32 %v)
; CHECK: call void @__sf_mid(
; CHECK: br label %second
; CHECK: second:
; CHECK: call i32 @handle.sf(i32 %v)
; CHECK: call i32 @__sf_end(
; CHECK: label %begin
; CHECK: define hidden i32 @handle.sf(i32 %v)
; CHECK: noinline nounwind "frame-pointer"="all"
; CHECK: noredzone
define i32 @handle(i32 %v) nounwind {
  ret i32 %v
}
