; What stands for code of another module names the original: in an archive it may be wanted by nothing else. A weak name is
; called by that name, since the linker decides what it means.
; CHECK: @hook.sf = weak hidden alias i32 (i32), ptr @spare.sf
; CHECK: call i32 @other.sf(i32 %v)
; CHECK: call i32 @hook.sf(i32 %v)
; CHECK: define weak i32 @other.sf(i32
; CHECK: , ptr @other)
; NEVER: call i32 @spare.sf
@hook = weak alias i32 (i32), ptr @spare
declare i32 @other(i32)
define i32 @spare(i32 %v) noinline {
  ret i32 %v
}
define i32 @calls(i32 %v) {
  %a = call i32 @other(i32 %v)
  %b = call i32 @hook(i32 %v)
  %c = add i32 %a, %b
  ret i32 %c
}
