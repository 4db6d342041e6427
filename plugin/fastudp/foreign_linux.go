package fastudp

import (
	"bufio"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// foreignSocket says whether a socket that this process has no descriptor of is bound to the address of
// c, and so is in its SO_REUSEPORT group. /proc/net/udp lists all of the network namespace, proc_net(5).
func foreignSocket(c *net.UDPConn) bool {
	suspects := notOurs(c)
	if len(suspects) == 0 {
		return false
	}
	again := notOurs(c) // one of ours may have been closed meanwhile
	return slices.ContainsFunc(suspects, func(number string) bool { return slices.Contains(again, number) })
}

// notOurs are the inodes of the sockets on the address of c that this process has no descriptor of.
func notOurs(c *net.UDPConn) []string {
	others := append(sameAddress("/proc/net/udp", c), sameAddress("/proc/net/udp6", c)...)
	// Asked last: a reload opens sockets meanwhile.
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return nil
	}
	ours := make(map[string]bool)
	for _, fd := range fds {
		link, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if number, ok := strings.CutPrefix(link, "socket:["); ok {
			ours[strings.TrimSuffix(number, "]")] = true
		}
	}
	return slices.DeleteFunc(others, func(number string) bool { return ours[number] })
}

// sameAddress are the inodes of the sockets in a table that have the local address of c.
func sameAddress(table string, c *net.UDPConn) []string {
	mine := inode(c)
	f, err := os.Open(table)
	if err != nil {
		return nil
	}
	defer f.Close()
	address := ""
	inodes := make(map[string][]string) // by address
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st queues tr retrnsmt uid timeout inode ...
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		at, number := fields[1], fields[9]
		if number == mine {
			address = at
		}
		inodes[at] = append(inodes[at], number)
	}
	return inodes[address]
}

// inode is the socket's number in /proc/net/udp.
func inode(c *net.UDPConn) (number string) {
	control(c, func(fd int) error {
		var st unix.Stat_t
		err := unix.Fstat(fd, &st)
		number = strconv.FormatUint(st.Ino, 10)
		return err
	})
	return number
}
