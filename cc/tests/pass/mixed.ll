; With `atomics-once` a plain load of what an atomic operation changes is kept for the second run: of the variable, of the field behind
; another pointer, and in the callee that is handed it. Loads of a neighbour's field and of another variable stay as they are.
; POLICY: atomics-once
; CHECK: define hidden i64 @handle.sf(ptr %c)
; CHECK: call i64 @__sf_load_mixed(ptr @word, i64 8)
; CHECK: call i64 @__sf_load_mixed(ptr %hits, i64 4)
; CHECK: load i64, ptr %other
; CHECK: load i64, ptr @apart
; CHECK: define hidden i64 @get.sf(ptr %at)
; CHECK: call i64 @__sf_load_mixed(ptr %at, i64 8)
%counter = type { i64, i32 }
@word = global i64 0
@apart = global i64 0
define i64 @handle(ptr %c) {
  %e = load i64, ptr @word
  %n = add i64 %e, 5
  %swapped = cmpxchg ptr @word, i64 %e, i64 %n seq_cst seq_cst
  %hits = getelementptr %counter, ptr %c, i64 0, i32 1
  %h = load i32, ptr %hits
  %other = getelementptr %counter, ptr %c, i64 0, i32 0
  %o = load i64, ptr %other
  %a = load i64, ptr @apart
  %g = call i64 @get(ptr @word)
  %s = add i64 %o, %a
  %r = add i64 %s, %g
  ret i64 %r
}
define void @hit(ptr %c) {
  %hits = getelementptr inbounds %counter, ptr %c, i32 0, i32 1
  %old = atomicrmw add ptr %hits, i32 1 seq_cst
  ret void
}
define i64 @get(ptr %at) {
  %v = load i64, ptr %at
  ret i64 %v
}
