; Outside handlers: looked at before it is read, mirrored after it is written, the library's writers by their own names;
; frames, constants and variables that only this module knows need nothing.
; POLICY: state dup
; POLICY: native read __sf_w_read
; POLICY: pure strlen
; POLICY: native time __sf_w_time
; POLICY: native strsep __sf_w_strsep
; CHECK: define i64 @all(
; CHECK: call void @__sf_state_read(ptr %p, i64 8)
; CHECK: load i64, ptr %p
; CHECK: call void @__sf_state_write(ptr %p, i64 4)
; CHECK: store i32 7, ptr %p
; CHECK: call void @__sf_state_written(ptr %p, i64 4)
; CHECK: call i64 @__sf_s_read(
; CHECK: call void @__sf_state_lend(ptr %p)
; CHECK: call i64 @strlen(
; CHECK: call void @__sf_state_room(ptr %p, i64 8)
; CHECK: call i64 @time(
; CHECK: call void @__sf_state_written(ptr %p, i64 8)
; CHECK: call void @__sf_state_refuse(ptr %p, ptr @__sf_text.strsep)
; CHECK: call ptr @strsep(
; NEVER: ptr %frame, i64 8)
; NEVER: @__sf_state_write(ptr @own
@own = internal global i64 0
declare i64 @read(i32, ptr, i64)
declare i64 @strlen(ptr)
declare i64 @time(ptr)
declare ptr @strsep(ptr, ptr)
define i64 @all(ptr %p) {
  %frame = alloca i64
  %v = load i64, ptr %p, align 8
  store i64 %v, ptr %frame, align 8
  store i64 %v, ptr @own, align 8
  store i32 7, ptr %p, align 4
  %n = call i64 @read(i32 0, ptr %p, i64 9)
  %l = call i64 @strlen(ptr %p)
  %t = call i64 @time(ptr %p)
  %s = call ptr @strsep(ptr %p, ptr %p)
  ret i64 %l
}
