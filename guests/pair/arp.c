/* Tells each gratuitous ARP of an address that comes by in this network: who says so, once. */
#include <arpa/inet.h>
#include <net/ethernet.h>
#include <net/if_arp.h>
#include <netinet/if_ether.h>
#include <netpacket/packet.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>

int main(int words, char **word)
{
	unsigned char own[4], known[16][6];
	int n = 0, all = socket(AF_PACKET, SOCK_RAW, htons(ETH_P_ARP));
	if (words < 2 || inet_pton(AF_INET, word[1], own) != 1 || all < 0)
		return 1;
	puts("listens");
	fflush(stdout);
	for (;;) {
		unsigned char bytes[256];
		const ssize_t got = recv(all, bytes, sizeof bytes, 0);
		const struct ether_arp *arp = (const struct ether_arp *)(bytes + ETH_HLEN);
		if (got < (ssize_t)(ETH_HLEN + sizeof *arp) || memcmp(arp->arp_spa, own, 4) || memcmp(arp->arp_tpa, own, 4))
			continue;
		int i = 0;
		while (i < n && memcmp(known[i], arp->arp_sha, 6))
			i++;
		if (i < n || n == 16)
			continue;
		memcpy(known[n++], arp->arp_sha, 6);
		for (int b = 0; b < 6; b++)
			printf("%02x%c", arp->arp_sha[b], b < 5 ? ':' : '\n');
		fflush(stdout);
	}
}
