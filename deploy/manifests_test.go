package deploy

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"sigs.k8s.io/yaml"
)

// manifests are the objects of kubernetes.yaml. A field that Kubernetes does not know is an error.
func manifests(text []byte) (config corev1.ConfigMap, deployment appsv1.Deployment, err error) {
	first, second, two := bytes.Cut(text, []byte("\n---\n"))
	if !two || bytes.Contains(second, []byte("\n---\n")) {
		return config, deployment, fmt.Errorf("want two documents")
	}
	if err := yaml.UnmarshalStrict(first, &config); err != nil {
		return config, deployment, err
	}
	return config, deployment, yaml.UnmarshalStrict(second, &deployment)
}

// kubernetesCorefile is the Corefile of kubernetes.yaml.
func kubernetesCorefile(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	config, _, err := manifests(text)
	if err != nil {
		t.Fatal(err)
	}
	return config.Data["Corefile"]
}

// TestKubernetes merges kubernetes.yaml with a Deployment like those that clusters have: our image is in the
// place of the other, and everything that we do not say stays.
func TestKubernetes(t *testing.T) {
	text, err := os.ReadFile("kubernetes.yaml")
	if err != nil {
		t.Fatal(err)
	}
	for _, field := range []string{"data:", "image:", "memory: 256Mi", "runAsNonRoot:"} {
		bad := strings.Replace(string(text), field, "x"+field, 1)
		if field == "memory: 256Mi" {
			bad = strings.Replace(string(text), field, "memory: 256Mx", 1)
		}
		if _, _, err := manifests([]byte(bad)); err == nil {
			t.Errorf("a mistake at %q is accepted", field)
		}
	}
	config, ours, err := manifests(text)
	if err != nil {
		t.Fatal(err)
	}
	if config.Kind != "ConfigMap" || config.APIVersion != "v1" || ours.Kind != "Deployment" || ours.APIVersion != "apps/v1" {
		t.Errorf("%v and %v", config.TypeMeta, ours.TypeMeta)
	}
	if config.Namespace != "kube-system" || config.Name != "coredns" || ours.Namespace != config.Namespace || ours.Name != config.Name {
		t.Errorf("%s/%s and %s/%s, want kube-system/coredns", config.Namespace, config.Name, ours.Namespace, ours.Name)
	}

	there := appsv1.Deployment{TypeMeta: ours.TypeMeta, ObjectMeta: ours.ObjectMeta}
	there.Spec.Template.Spec.DNSPolicy = corev1.DNSDefault
	there.Spec.Template.Spec.Containers = []corev1.Container{{
		Name:           "coredns",
		Image:          "another",
		Ports:          []corev1.ContainerPort{{Name: "dns", ContainerPort: 53, Protocol: corev1.ProtocolUDP}},
		VolumeMounts:   []corev1.VolumeMount{{Name: "config-volume", MountPath: "/etc/coredns", ReadOnly: true}},
		ReadinessProbe: &corev1.Probe{PeriodSeconds: 7},
	}}
	original, err := json.Marshal(there)
	if err != nil {
		t.Fatal(err)
	}
	_, patch, _ := bytes.Cut(text, []byte("\n---\n"))
	if patch, err = yaml.YAMLToJSON(patch); err != nil {
		t.Fatal(err)
	}
	merged, err := strategicpatch.StrategicMergePatch(original, patch, appsv1.Deployment{})
	if err != nil {
		t.Fatal(err)
	}
	var got appsv1.Deployment
	if err := json.Unmarshal(merged, &got); err != nil {
		t.Fatal(err)
	}
	pod := got.Spec.Template.Spec
	if len(pod.Containers) != 1 || pod.DNSPolicy != corev1.DNSDefault {
		t.Fatalf("merged: %s", merged)
	}
	c, want := pod.Containers[0], ours.Spec.Template.Spec.Containers[0]
	if c.Image != want.Image || c.Resources.Limits.Memory().String() != "256Mi" || len(c.Ports) != 1 || len(c.VolumeMounts) != 1 || c.ReadinessProbe == nil {
		t.Errorf("merged: %s", merged)
	}
	if fmt.Sprint(got.Spec.Selector.MatchLabels) != fmt.Sprint(got.Spec.Template.Labels) {
		t.Errorf("selector %v, labels %v", got.Spec.Selector.MatchLabels, got.Spec.Template.Labels)
	}
	restricted(t, c.SecurityContext)
}

// restricted checks that a container may do no more than listen on port 53.
func restricted(t *testing.T, s *corev1.SecurityContext) {
	t.Helper()
	if s == nil || s.Capabilities == nil || s.AllowPrivilegeEscalation == nil || s.ReadOnlyRootFilesystem == nil || s.RunAsNonRoot == nil {
		t.Fatalf("security context: %v", s)
	}
	if *s.AllowPrivilegeEscalation || !*s.ReadOnlyRootFilesystem || !*s.RunAsNonRoot || s.Privileged != nil ||
		fmt.Sprint(s.Capabilities.Drop, s.Capabilities.Add) != "[ALL] [NET_BIND_SERVICE]" {
		t.Errorf("security context: %v", s)
	}
}

// helmValues are those of the chart's values that helm-values.yaml sets.
type helmValues struct {
	Image struct {
		Repository string `json:"repository"`
		Tag        string `json:"tag"`
	} `json:"image"`
	ServiceAccount struct {
		Create bool `json:"create"`
	} `json:"serviceAccount"`
	Resources struct {
		Requests corev1.ResourceList `json:"requests"`
		Limits   corev1.ResourceList `json:"limits"`
	} `json:"resources"`
	SecurityContext *corev1.SecurityContext `json:"securityContext"`
	Servers         []struct {
		Zones []struct {
			Zone   string `json:"zone"`
			Scheme string `json:"scheme"`
			UseTCP bool   `json:"use_tcp"`
		} `json:"zones"`
		Port    int `json:"port"`
		Plugins []struct {
			Name        string `json:"name"`
			Parameters  any    `json:"parameters"`
			ConfigBlock string `json:"configBlock"`
		} `json:"plugins"`
	} `json:"servers"`
}

func readHelmValues(t *testing.T) (v helmValues) {
	t.Helper()
	text, err := os.ReadFile("helm-values.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if err := yaml.UnmarshalStrict(text, &v); err != nil {
		t.Fatal(err)
	}
	return v
}

// helmCorefile is the Corefile that the chart writes of the values.
func helmCorefile(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	for _, s := range readHelmValues(t).Servers {
		for _, z := range s.Zones {
			fmt.Fprintf(&b, "%s%s:%d ", z.Scheme, z.Zone, s.Port)
		}
		b.WriteString("{\n")
		for _, p := range s.Plugins {
			b.WriteString("    " + p.Name)
			if p.Parameters != nil {
				fmt.Fprintf(&b, " %v", p.Parameters)
			}
			if p.ConfigBlock != "" {
				fmt.Fprintf(&b, " {\n%s\n    }", p.ConfigBlock)
			}
			b.WriteString("\n")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func TestHelmValues(t *testing.T) {
	v := readHelmValues(t)
	if v.Image.Repository == "" || v.Image.Tag == "" || !v.ServiceAccount.Create || v.Resources.Limits.Memory().String() != "256Mi" {
		t.Errorf("values: %+v", v)
	}
	restricted(t, v.SecurityContext)
	// The chart takes the port of the metrics from what follows the first colon.
	for _, s := range v.Servers {
		for _, p := range s.Plugins {
			if p.Name == "prometheus" && strings.Count(fmt.Sprint(p.Parameters), ":") != 1 {
				t.Errorf("prometheus %v", p.Parameters)
			}
		}
	}
}
