/* Page map: which pages of an address range are present, zero, a file's, or written since they were protected.
 *
 * Linux 6.7 and newer; the kernel's documentation, admin-guide/mm/pagemap.rst, "Pagemap Scan IOCTL".
 */
#ifndef SF_PAGEMAP_H
#define SF_PAGEMAP_H

#include "ground/types.h"

struct page_region {
	u64 start, end, categories;
};
struct pm_scan_arg {
	u64 size, flags, start, end, walk_end, vec, vec_len, max_pages, category_inverted, category_mask, category_anyof_mask, return_mask;
};
_Static_assert(sizeof(struct pm_scan_arg) == 0x60, "the size is a part of the ioctl's number");
#define PAGEMAP_SCAN 0xc0606610ull
#define PM_SCAN_WP_MATCHING 1u
#define PM_SCAN_CHECK_WPASYNC 2u
#define PAGE_IS_WRITTEN (1u << 1)
#define PAGE_IS_FILE (1u << 2)
#define PAGE_IS_PRESENT (1u << 3)
#define PAGE_IS_SWAPPED (1u << 4)
#define PAGE_IS_PFNZERO (1u << 5)
#define PAGE_IS_HUGE (1u << 6)

#endif
