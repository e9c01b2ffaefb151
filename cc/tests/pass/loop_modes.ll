; With --recover every store is looked at in advance: no ranges of loops. So in the other modes that look at each store.
; POLICY: recover x
; CHECK: define hidden void @bytes.sf(
; CHECK: call __sf_before
; NEVER: @__sf_range_next
define void @bytes(ptr %to, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %at = getelementptr i8, ptr %to, i64 %i
  store i8 1, ptr %at
  %next = add nuw nsw i64 %i, 1
  %is.last = icmp eq i64 %next, %n
  br i1 %is.last, label %done, label %loop
done:
  ret void
}
