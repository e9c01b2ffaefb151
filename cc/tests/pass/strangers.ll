; Stores that are looked up each for itself: not known to be of one word, with a byte between them that may be another thread's, with a call between
; them, which may end the event, or volatile.
; POLICY: pure reads
; CHECK: define hidden void @unknown.sf(
; CHECK: call __sf_slow_part
; CHECK: store i32 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @gap.sf(
; CHECK: call __sf_slow_part
; CHECK: store i32 1
; CHECK: call __sf_slow_part
; CHECK: store i16 2
; CHECK: define hidden void @called.sf(
; CHECK: call __sf_slow_part
; CHECK: store i32 1
; CHECK: call void @reads
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; CHECK: define hidden void @is_volatile.sf(
; CHECK: call __sf_slow_part
; CHECK: store volatile i32 1
; CHECK: call __sf_slow_part
; CHECK: store volatile i32 2
; CHECK: define hidden void @over.sf(
; CHECK: call __sf_slow_part
; CHECK: store i32 1
; CHECK: call __sf_slow_part
; CHECK: store i32 2
; NEVER: call __sf_astray
declare void @reads(ptr)
define void @unknown(ptr %to) {
  store i32 1, ptr %to, align 4
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
define void @gap(ptr %to) {
  store i32 1, ptr %to, align 8
  %more = getelementptr i8, ptr %to, i64 6
  store i16 2, ptr %more, align 2
  ret void
}
define void @called(ptr %to) {
  store i32 1, ptr %to, align 8
  call void @reads(ptr %to)
  %more = getelementptr i8, ptr %to, i64 4
  store i32 2, ptr %more, align 4
  ret void
}
define void @is_volatile(ptr %to) {
  store volatile i32 1, ptr %to, align 8
  %more = getelementptr i8, ptr %to, i64 4
  store volatile i32 2, ptr %more, align 4
  ret void
}
; Of two words.
define void @over(ptr %to) {
  %one = getelementptr i8, ptr %to, i64 4
  store i32 1, ptr %one, align 4
  %two = getelementptr i8, ptr %to, i64 8
  store i32 2, ptr %two, align 8
  ret void
}
