package deploy

import (
	"debug/elf"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/fastudp/fastudp/internal/child"

	"github.com/miekg/dns"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// buildImage does what the Dockerfile says, in a folder: it builds with the Dockerfile's command, and gives the
// program the Dockerfile's capability. Nothing else is in the image that the program needs.
func buildImage(t *testing.T, root string) {
	t.Helper()
	text, err := os.ReadFile("../Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	for _, start := range []string{"CGO_ENABLED=0 go build", "setcap"} {
		m := regexp.MustCompile(`(?m)^RUN (` + start + ` .* /coredns\b.*)$`).FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("the Dockerfile does not run %s", start)
		}
		cmd := exec.Command("sh", "-c", strings.Replace(m[1], " /coredns", " "+root+"/coredns", 1))
		cmd.Dir, cmd.Env = "..", append(os.Environ(), "GOFLAGS=-buildvcs=false")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Fatalf("%v: %v\n%s", cmd, err, out)
		}
	}
	f, err := elf.Open(filepath.Join(root, "coredns"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			t.Error("the program is linked dynamically")
		}
	}
}

// asContainer is a command that runs the program in the folder as Kubernetes does with kubernetes.yaml: as
// nobody with CAP_NET_BIND_SERVICE in the permitted set, which no new privileges lets stay as it is.
func asContainer(t *testing.T, root string, caps bool) []string {
	t.Helper()
	last, err := os.ReadFile("/proc/sys/kernel/cap_last_cap")
	if err != nil {
		t.Fatal(err)
	}
	var n int
	fmt.Sscan(string(last), &n)
	var drop []string
	for c := range n + 1 {
		if c != 10 || !caps { // CAP_NET_BIND_SERVICE
			drop = append(drop, fmt.Sprint(c))
		}
	}
	grant := "--caps=cap_net_bind_service=ep"
	if !caps {
		grant = "--caps="
	}
	return []string{"capsh", "--chroot=" + root, "--drop=" + strings.Join(drop, ","), "--keep=1", "--gid=65532", "--groups=", "--uid=65532",
		grant, "--no-new-privs", "--shell=/coredns", "--", "-conf", "/etc/coredns/Corefile"}
}

// TestImage starts what the Dockerfile makes with the Corefiles that the manifests give, as they are, next to an
// API server that knows one service, in a network namespace that is the pod's.
func TestImage(t *testing.T) {
	for _, tool := range []string{"setcap", "capsh"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skip("needs ", tool)
		}
	}
	ns := namespace(t)
	root := publicDir(t)
	buildImage(t, root)
	api := startAPI(t, ns, root)
	write := func(name, text string) {
		t.Helper()
		file := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("etc/resolv.conf", "nameserver 192.0.2.53\n")

	for name, corefile := range map[string]string{"kubernetes.yaml": kubernetesCorefile(t), "helm-values.yaml": helmCorefile(t)} {
		t.Run(name, func(t *testing.T) {
			write("etc/coredns/Corefile", corefile)
			p, err := child.Start(child.Options{Name: "coredns", Netns: ns, Env: api}, asContainer(t, root, true)...)
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				// SIGTERM would wait for the lameduck of health.
				p.Signal(syscall.SIGKILL)
				<-p.Done()
				if t.Failed() {
					t.Logf("its log:\n%s", p.Log())
				}
			}()
			eventually := func(what string, state func() error) {
				t.Helper()
				for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) {
					err := state()
					if err == nil {
						return
					}
					if time.Now().After(end) || ended(p) {
						t.Fatalf("never %s: %v", what, err)
					}
				}
			}
			get := func(url string) (body string, err error) {
				err = inside(t, ns, func() error { body, err = httpGet(url); return err })
				return body, err
			}
			// The probes of the Deployment.
			for _, url := range []string{"http://127.0.0.1:8080/health", "http://127.0.0.1:8181/ready"} {
				eventually(url, func() error { _, err := get(url); return err })
			}
			for _, network := range []string{"udp", "tcp"} {
				eventually("answers over "+network, func() error {
					return inside(t, ns, func() error {
						client := dns.Client{Net: network, Timeout: time.Second}
						r, _, err := client.Exchange(new(dns.Msg).SetQuestion("web.shop.svc.cluster.local.", dns.TypeA), "127.0.0.1:53")
						if err != nil {
							return err
						}
						if len(r.Answer) != 1 || !strings.HasSuffix(r.Answer[0].String(), "\t10.96.0.7") {
							return fmt.Errorf("answer: %v", r)
						}
						return nil
					})
				})
			}
			body, err := get("http://127.0.0.1:9153/metrics")
			if err != nil {
				t.Fatal(err)
			}
			for _, bad := range []string{"[ERROR] plugin/fastudp", "[WARNING] plugin/fastudp"} {
				if strings.Contains(p.Log(), bad) {
					t.Errorf("%s in its log", bad)
				}
			}
			if n := strings.Count(body, "\ncoredns_fastudp_received_total{"); n != 4 {
				t.Errorf("%d sockets are fastudp's, want 4", n)
			}
		})
	}
	t.Run("no capability", func(t *testing.T) {
		p, err := child.Start(child.Options{Name: "coredns", Netns: ns, Env: api}, asContainer(t, root, false)...)
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-p.Done():
			if !strings.Contains(p.Log(), "execve '/coredns' failed") {
				t.Errorf("its log: %s", p.Log())
			}
		case <-time.After(10 * time.Second):
			p.Stop()
			t.Error("the program starts without the capability, though the manifests say that it does not")
		}
	})
}

func ended(p *child.Child) bool {
	select {
	case <-p.Done():
		return true
	default:
		return false
	}
}

// httpGet is the body of a page. Its connections end with it, since they belong to a namespace.
func httpGet(url string) (string, error) {
	conn := strings.SplitN(strings.TrimPrefix(url, "http://"), "/", 2)
	c, err := net.DialTimeout("tcp", conn[0], time.Second)
	if err != nil {
		return "", err
	}
	defer c.Close()
	c.SetDeadline(time.Now().Add(5 * time.Second))
	fmt.Fprintf(c, "GET /%s HTTP/1.0\r\n\r\n", conn[1])
	reply, err := io.ReadAll(c)
	if err != nil {
		return "", err
	}
	if !strings.Contains(string(reply[:min(len(reply), 15)]), " 200 ") {
		return "", fmt.Errorf("%.80s", reply)
	}
	return string(reply), nil
}

// startAPI serves what CoreDNS asks of an API server, in the namespace. It writes the service account's files
// into the root folder and returns the environment that pods have.
func startAPI(t *testing.T, ns, root string) []string {
	t.Helper()
	var l net.Listener
	if err := inside(t, ns, func() (err error) { l, err = net.Listen("tcp", "127.0.0.1:0"); return err }); err != nil {
		t.Fatal(err)
	}
	version := metav1.ListMeta{ResourceVersion: "1"}
	lists := map[string]runtime.Object{
		"/api/v1/services": &corev1.ServiceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ServiceList"}, ListMeta: version,
			Items: []corev1.Service{{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", ResourceVersion: "1"},
				Spec:       corev1.ServiceSpec{ClusterIP: "10.96.0.7", ClusterIPs: []string{"10.96.0.7"}, Ports: []corev1.ServicePort{{Port: 80, Protocol: corev1.ProtocolTCP}}},
			}},
		},
		"/api/v1/namespaces": &corev1.NamespaceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "NamespaceList"}, ListMeta: version,
			Items: []corev1.Namespace{{ObjectMeta: metav1.ObjectMeta{Name: "shop", ResourceVersion: "1"}}},
		},
		"/apis/discovery.k8s.io/v1/endpointslices": &discoveryv1.EndpointSliceList{
			TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}, ListMeta: version,
		},
	}
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		list, ok := lists[r.URL.Path]
		if !ok {
			http.NotFound(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		if q := r.URL.Query(); q.Get("watch") != "" {
			if q.Get("sendInitialEvents") != "" { // then the client asks for the list
				w.WriteHeader(http.StatusUnprocessableEntity)
				json.NewEncoder(w).Encode(metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusFailure, Reason: metav1.StatusReasonInvalid, Code: http.StatusUnprocessableEntity})
				return
			}
			w.(http.Flusher).Flush()
			<-r.Context().Done() // nothing ever changes
			return
		}
		json.NewEncoder(w).Encode(list)
	}))
	s.Listener.Close()
	s.Listener = l
	s.StartTLS()
	t.Cleanup(func() { s.CloseClientConnections(); s.Close() })

	dir := filepath.Join(root, "var/run/secrets/kubernetes.io/serviceaccount")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	ca := pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
	for name, text := range map[string][]byte{"ca.crt": ca, "token": []byte("token"), "namespace": []byte("kube-system")} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	_, port, _ := net.SplitHostPort(l.Addr().String())
	return []string{"KUBERNETES_SERVICE_HOST=127.0.0.1", "KUBERNETES_SERVICE_PORT=" + port}
}
