// echo ADDRESS PORT answers each datagram with itself, QR set: what batched system calls cost alone.
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>

enum { BATCH = 64, SIZE = 4096 };

int main(int argc, char **argv) {
	static char data[BATCH][SIZE];
	static struct sockaddr_in peer[BATCH];
	static struct iovec iov[BATCH];
	static struct mmsghdr msg[BATCH];
	struct sockaddr_in at = {.sin_family = AF_INET};
	int fd = socket(AF_INET, SOCK_DGRAM, 0), size = 4 << 20;
	if (argc != 3 || inet_pton(AF_INET, argv[1], &at.sin_addr) != 1)
		return 2;
	at.sin_port = htons(atoi(argv[2]));
	if (setsockopt(fd, SOL_SOCKET, SO_RCVBUFFORCE, &size, sizeof size))
		setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &size, sizeof size);
	if (bind(fd, (struct sockaddr *)&at, sizeof at)) {
		perror("bind");
		return 1;
	}
	for (int i = 0; i < BATCH; i++)
		msg[i].msg_hdr = (struct msghdr){.msg_name = &peer[i], .msg_iov = &iov[i], .msg_iovlen = 1};
	for (;;) {
		for (int i = 0; i < BATCH; i++) {
			iov[i] = (struct iovec){data[i], SIZE};
			msg[i].msg_hdr.msg_namelen = sizeof peer[i];
		}
		int n = recvmmsg(fd, msg, BATCH, MSG_WAITFORONE, NULL);
		for (int i = 0; i < n; i++) {
			data[i][2] |= 0x80;
			iov[i].iov_len = msg[i].msg_len;
		}
		for (int done = 0, k; done < n; done += k)
			if ((k = sendmmsg(fd, msg + done, n - done, 0)) <= 0)
				k = 1; // skip the one that fails
	}
}
