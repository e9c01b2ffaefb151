; Without --between=duplicate code outside handlers stays as it is.
; CHECK: define i32 @all(
; CHECK: ret i32
; NEVER: @__sf_between_
define i32 @all(ptr %p, i32 %n) {
  %v = load i32, ptr %p, align 4
  %sum = add i32 %v, %n
  store i32 %sum, ptr %p, align 4
  ret i32 %sum
}
