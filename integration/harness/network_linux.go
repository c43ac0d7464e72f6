package harness

import (
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"
)

var networks atomic.Int64

// NewNetwork makes a network of so many nodes (hosts 1 to nodes), and takes it
// apart with the test. It skips the test, and says why, where the process may
// not make network namespaces.
func NewNetwork(t testing.TB, nodes int) *Network {
	t.Helper()
	if err := mayMakeNetworks(); err != nil {
		t.Skipf("SKIPPED: network namespaces are not possible here: %v (root, iproute2 and /dev/net/tun are needed)", err)
	}
	dropStaleSpaces()
	number := int(networks.Add(1))
	name := fmt.Sprintf("tv%dn%d", os.Getpid(), number)
	n := &Network{
		prefix: fmt.Sprintf("10.%d.%d.", 200+os.Getpid()/250%50, (os.Getpid()+number)%250),
		links:  map[[2]int]Link{},
	}
	stop := make(chan struct{})
	var pumps sync.WaitGroup
	t.Cleanup(func() {
		close(stop)
		for _, p := range n.ports {
			if p.dev != nil {
				_ = p.dev.Close()
			}
			if p.space != "" {
				_ = exec.Command("ip", "netns", "del", p.space).Run() // the next run tries again
			}
		}
		pumps.Wait()
	})
	for host := range nodes + 1 {
		p := &port{}
		n.ports = append(n.ports, p)
		for range nodes + 1 {
			p.late = append(p.late, make(chan packet, maxHeld))
		}
		Must(t, n.plug(p, host, name))
	}
	for host := range n.ports {
		pumps.Go(func() { n.pump(host) })
		for from := range n.ports {
			pumps.Go(func() { n.deliver(from, host, stop) })
		}
	}
	return n
}

// Command makes a command run on a host.
func (n *Network) Command(host int, argv ...string) []string {
	if n.ports[host].space == "" {
		return argv
	}
	return append([]string{"ip", "netns", "exec", n.ports[host].space}, argv...)
}

// plug makes a host's device, and its namespace unless it is the test's own.
func (n *Network) plug(p *port, host int, name string) error {
	dev := name + "h" + strconv.Itoa(host)
	f, err := openTUN(dev)
	if err != nil {
		return err
	}
	p.dev = f
	if host == 0 {
		return run("ip link set dev "+dev+" mtu 32000 up", "ip addr add "+n.Host(0)+"/24 dev "+dev)
	}
	if err := run("ip netns add " + dev); err != nil {
		return err
	}
	p.space = dev
	inside := "ip -n " + dev + " "
	return run(
		"ip link set dev "+dev+" netns "+dev,
		inside+"link set dev lo up",
		inside+"link set dev "+dev+" mtu 32000 up",
		inside+"addr add "+n.Host(host)+"/24 dev "+dev,
		inside+"route add default dev "+dev,
	)
}

func run(commands ...string) error {
	for _, c := range commands {
		argv := strings.Fields(c)
		if out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w: %s", c, err, out)
		}
	}
	return nil
}

// openTUN makes a TUN device that goes when the file is closed.
func openTUN(name string) (*os.File, error) {
	fd, err := unix.Open("/dev/net/tun", unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("open /dev/net/tun: %w", err)
	}
	req, err := unix.NewIfreq(name)
	if err == nil {
		req.SetUint16(unix.IFF_TUN | unix.IFF_NO_PI)
		err = unix.IoctlIfreq(fd, unix.TUNSETIFF, req)
	}
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("make the device %s: %w", name, err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

func mayMakeNetworks() error {
	if os.Geteuid() != 0 {
		return fmt.Errorf("user %d is not root", os.Geteuid())
	}
	if _, err := exec.LookPath("ip"); err != nil {
		return err
	}
	f, err := openTUN("")
	if err != nil {
		return err
	}
	_ = f.Close()
	space := fmt.Sprintf("tv%dn0h0", os.Getpid())
	if err := run("ip netns add " + space); err != nil {
		return err
	}
	return run("ip netns del " + space)
}

var spaceName = regexp.MustCompile(`(?m)^tv(\d+)n\d+h\d+`)

// dropStaleSpaces deletes namespaces of test processes that were killed.
func dropStaleSpaces() {
	out, err := exec.Command("ip", "netns", "list").Output()
	if err != nil {
		return
	}
	for _, m := range spaceName.FindAllStringSubmatch(string(out), -1) {
		if _, err := os.Stat("/proc/" + m[1]); os.IsNotExist(err) {
			_ = exec.Command("ip", "netns", "del", m[0]).Run()
		}
	}
}
