; With `atomics-once` an operation on what a pointer leads to may change any word of its width that pointers lead to: plain loads of these
; are kept for the second run. Loads of another width, and of a variable whose address nobody takes, stay as they are.
; POLICY: atomics-once
; CHECK: define hidden i64 @handle.sf(ptr %c)
; CHECK: call i64 @__sf_load_mixed(ptr @open, i64 8)
; CHECK: load i64, ptr @shut
; CHECK: load i32, ptr @narrow
@open = global i64 0
@shut = internal global i64 0
@narrow = global i32 0
@current = global ptr @open
define i64 @handle(ptr %c) {
  %o = load i64, ptr @open
  %s = load i64, ptr @shut
  %n = load i32, ptr @narrow
  %at = load ptr, ptr @current
  %old = atomicrmw add ptr %at, i64 1 seq_cst
  %w = zext i32 %n to i64
  %a = add i64 %o, %s
  %r = add i64 %a, %w
  ret i64 %r
}
