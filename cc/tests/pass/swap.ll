; With `atomics-once` a compare-and-swap is done by the first run; the second is given the old value, and whether it was the
; expected one. On the function's own frame nothing is replayed.
; POLICY: atomics-once
; CHECK: define hidden i1 @swap.sf(ptr %p, i64 %from, i64 %to)
; CHECK: call i32 @__sf_once(
; CHECK: cmpxchg ptr %p, i64 %from, i64 %to
; CHECK: extractvalue { i64, i1 }
; CHECK: call void @__sf_once_done(
; CHECK: icmp eq i64
; CHECK: insertvalue { i64, i1 }
; CHECK: phi { i64, i1 }
; CHECK: define hidden i32 @local.sf()
; CHECK: atomicrmw add ptr %a, i32 1
; NEVER: call void @__sf_refuse
define i1 @swap(ptr %p, i64 %from, i64 %to) {
  %r = cmpxchg ptr %p, i64 %from, i64 %to seq_cst seq_cst
  %s = extractvalue { i64, i1 } %r, 1
  ret i1 %s
}
define i32 @local() {
  %a = alloca i32
  store i32 1, ptr %a
  %r = atomicrmw add ptr %a, i32 1 seq_cst
  ret i32 %r
}
