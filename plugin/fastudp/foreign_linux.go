package fastudp

import (
	"bufio"
	"net"
	"os"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// foreignSocket says whether a socket that this process has no descriptor of is bound to the address of
// c, and so is in its SO_REUSEPORT group. /proc/net/udp lists all of the network namespace, proc_net(5).
func foreignSocket(c *net.UDPConn) bool {
	ours := make(map[string]bool)
	fds, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false
	}
	for _, fd := range fds {
		link, _ := os.Readlink("/proc/self/fd/" + fd.Name())
		if number, ok := strings.CutPrefix(link, "socket:["); ok {
			ours[strings.TrimSuffix(number, "]")] = true
		}
	}
	return foreignIn("/proc/net/udp", c, ours) || foreignIn("/proc/net/udp6", c, ours)
}

// foreignIn looks for sockets in one table that have the local address of c and are not in ours.
func foreignIn(table string, c *net.UDPConn, ours map[string]bool) bool {
	mine := inode(c)
	f, err := os.Open(table)
	if err != nil {
		return false
	}
	defer f.Close()
	address := ""
	others := make(map[string][]string) // inodes by address
	for lines := bufio.NewScanner(f); lines.Scan(); {
		// sl local_address rem_address st queues tr retrnsmt uid timeout inode ...
		fields := strings.Fields(lines.Text())
		if len(fields) < 10 {
			continue
		}
		switch at, number := fields[1], fields[9]; {
		case number == mine:
			address = at
		case !ours[number]:
			others[at] = append(others[at], number)
		}
	}
	return address != "" && len(others[address]) > 0
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
