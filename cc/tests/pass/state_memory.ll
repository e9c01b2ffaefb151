; A function whose memory is protected asks for it by another name, in and outside handlers; another function does not.
; Libraries in handlers are given the run's own copy, and their pointer comes back as the object's.
; POLICY: state dup
; POLICY: dup-memory make
; POLICY: native malloc __sf_w_malloc
; POLICY: native free __sf_w_free
; POLICY: native __sf_s_dup_malloc __sf_w_s_dup_malloc
; POLICY: pure strchr
; CHECK: define ptr @make(
; CHECK: call ptr @__sf_s_dup_malloc(i64 8)
; CHECK: define ptr @other(
; CHECK: call ptr @malloc(i64 8)
; CHECK: call void @__sf_s_free(ptr %p)
; CHECK: define hidden ptr @make.sf(
; CHECK: call ptr @__sf_w_s_dup_malloc(i64 8)
; CHECK: define hidden ptr @other.sf(
; CHECK: call ptr @__sf_w_malloc(i64 8)
; CHECK: call void @__sf_w_free(ptr %p)
; CHECK: getelementptr i8, ptr %p
; CHECK: = call ptr @strchr(ptr %
; CHECK: sub i64
; CHECK: inttoptr i64
declare ptr @malloc(i64)
declare void @free(ptr)
declare ptr @strchr(ptr, i32)
define ptr @make() {
  %p = call ptr @malloc(i64 8)
  ret ptr %p
}
define ptr @other(ptr %p) {
  %q = call ptr @malloc(i64 8)
  call void @free(ptr %p)
  %r = call ptr @strchr(ptr %p, i32 4)
  ret ptr %r
}
