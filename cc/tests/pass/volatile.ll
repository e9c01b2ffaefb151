; What others may change meanwhile is read once: volatile loads, and those of a racy variable.
; POLICY: racy flag
; CHECK: define hidden i64 @look.sf(
; CHECK: call i64 @__sf_load_once(ptr %at, i64 8)
; CHECK: call i64 @__sf_load_once(ptr @flag, i64 4)
@flag = global i32 0
define i64 @look(ptr %at) {
  %a = load volatile i64, ptr %at
  %b = load i32, ptr @flag
  %c = zext i32 %b to i64
  %d = add i64 %a, %c
  ret i64 %d
}
