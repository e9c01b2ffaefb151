; A function of the program's is not the library's of the same name.
; POLICY: library
; POLICY: pure index
; POLICY: pure trunc
; POLICY: pure strlen
; POLICY: native malloc __sf_w_malloc
; POLICY: program
; POLICY: pure round
; CHECK: define hidden i64 @calls.sf(
; CHECK: call i64 @index.sf(i64 %v)
; CHECK: call i64 @trunc.sf(i64 %v)
; CHECK: call i64 @strlen(i64 %v)
; CHECK: call i64 @__sf_w_malloc(i64 %v)
; CHECK: call i64 @round(i64 %v)
@n = global i64 0
declare i64 @strlen(i64)
define i64 @malloc(i64 %v) {
  ret i64 %v
}
define internal i64 @index(i64 %v) noinline {
  store i64 %v, ptr @n
  ret i64 %v
}
define i64 @trunc(i64 %v) noinline {
  store i64 %v, ptr @n
  ret i64 %v
}
define internal i64 @round(i64 %v) {
  ret i64 %v
}
define i64 @calls(i64 %v) {
  %a = call i64 @index(i64 %v)
  %b = call i64 @trunc(i64 %v)
  %c = call i64 @strlen(i64 %v)
  %d = call i64 @malloc(i64 %v)
  %e = call i64 @round(i64 %v)
  ret i64 %a
}
