use super::ELF;

#[test]
fn the_image_is_an_elf_file_linked_at_its_base() {
    assert_eq!(&ELF[..4], b"\x7fELF");
    // e_entry, System V ABI "ELF Header": inside the first mebibyte after SF_BASE.
    let entry = u64::from_le_bytes(ELF[24..32].try_into().expect("eight bytes"));
    assert_eq!(entry >> 20, 0x2a00_0000_0000 >> 20);
}
