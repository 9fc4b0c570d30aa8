"""A node and a pod as the API server of a K3s cluster shows them, <holes> where they differ.

With everything that a tick does not need: managed fields, probes, volumes, conditions, container statuses, images.
"""

from typing import Any, Final

_MADE: Final = "2026-01-14T06:30:00Z"


def node() -> dict[str, Any]:
    labels = {
        "beta.kubernetes.io/arch": "amd64",
        "beta.kubernetes.io/os": "linux",
        "holdfast.dev/instance-id": "<name>",
        "holdfast.dev/lifecycle": "spot",
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/hostname": "<name>",
        "kubernetes.io/os": "linux",
        "node.kubernetes.io/instance-type": "t3.medium",
        "topology.kubernetes.io/region": "eu-west-1",
        "topology.kubernetes.io/zone": "<zone>",
    }
    annotations = {
        "alpha.kubernetes.io/provided-node-ip": "<ip>",
        "flannel.alpha.coreos.com/backend-data": '{"VNI":1,"VtepMAC":"5e:8a:3d:11:42:9f"}',
        "flannel.alpha.coreos.com/backend-type": "vxlan",
        "flannel.alpha.coreos.com/public-ip": "<ip>",
        "k3s.io/hostname": "<name>",
        "k3s.io/internal-ip": "<ip>",
        "k3s.io/node-args": '["agent","--node-label","holdfast.dev/lifecycle=spot"]',
        "k3s.io/node-config-hash": "Q7N5MZ3K2X4VYT6R",
        "node.alpha.kubernetes.io/ttl": "0",
        "volumes.kubernetes.io/controller-managed-attach-detach": "true",
    }
    conditions = [
        {
            "type": kind,
            "status": "True" if kind == "Ready" else "False",
            "lastHeartbeatTime": "2026-01-15T07:59:31Z",
            "lastTransitionTime": _MADE,
            "reason": f"Kubelet{kind}",
            "message": f"kubelet reports {kind} as it should be",
        }
        for kind in ("MemoryPressure", "DiskPressure", "PIDPressure", "Ready")
    ]
    images = [
        {
            "names": [
                f"registry.example.com/shop/service-{number:02d}@sha256:{number * 7919:064x}",
                f"registry.example.com/shop/service-{number:02d}:v1.{number}.0",
            ],
            "sizeBytes": 48_151_623 + number * 104_729,
        }
        for number in range(20)
    ]
    resources = {"cpu": "2", "ephemeral-storage": "20134592Ki", "memory": "3943372Ki", "pods": "110"}
    return {
        "metadata": {
            "name": "<name>",
            "uid": "<uid>",
            "resourceVersion": "48151600",
            "creationTimestamp": _MADE,
            "labels": labels,
            "annotations": annotations,
            "finalizers": ["wrangler.cattle.io/node"],
            "managedFields": [_managed("k3s", [*labels, *annotations], ["podCIDR", "providerID"])],
        },
        "spec": {"podCIDR": "10.42.7.0/24", "podCIDRs": ["10.42.7.0/24"], "providerID": "k3s://<name>"},
        "status": {
            "capacity": resources,
            "allocatable": resources,
            "conditions": conditions,
            "addresses": [{"type": "InternalIP", "address": "<ip>"}, {"type": "Hostname", "address": "<name>"}],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "nodeInfo": {
                "machineID": "ec2a1f0b7d3c4e5f8091a2b3c4d5e6f7",
                "systemUUID": "ec2a1f0b-7d3c-4e5f-8091-a2b3c4d5e6f7",
                "kernelVersion": "6.1.0-28-cloud-amd64",
                "osImage": "Debian GNU/Linux 12 (bookworm)",
                "containerRuntimeVersion": "containerd://1.7.23-k3s2",
                "kubeletVersion": "v1.31.4+k3s1",
                "operatingSystem": "linux",
                "architecture": "amd64",
            },
            "images": images,
        },
    }


def pod(controller: str, containers: int) -> dict[str, Any]:
    labels = {
        "app.kubernetes.io/name": "checkout-api",
        "app.kubernetes.io/part-of": "shop",
        "pod-template-hash": "5d8c7b9f64",
    }
    annotations = {
        "checksum/config": "3b1f6a0c9e8d7f5a2c4b6e8d0f1a3c5e7b9d1f3a5c7e9b1d3f5a7c9e1b3d5f7a",
        "prometheus.io/port": "9102",
        "prometheus.io/scrape": "true",
    }
    owner = {
        "apiVersion": "apps/v1",
        "kind": controller,
        "name": "checkout-api-5d8c7b9f64",
        "uid": "0b1d9c1e-4a7d-4e8b-9d52-9e3779b10007",
    }
    names = [f"container-{number}" for number in range(containers)]
    volumes: list[dict[str, Any]] = [
        {"name": "config", "configMap": {"name": "checkout-api", "defaultMode": 420}},
        {
            "name": "kube-api-access-x7k2p",
            "projected": {"defaultMode": 420, "sources": [{"downwardAPI": {"items": []}}]},
        },
    ]
    if controller == "StatefulSet":
        volumes.append({"name": "data", "persistentVolumeClaim": {"claimName": "data-checkout-api-0"}})
    return {
        "metadata": {
            "name": "<name>",
            "generateName": "checkout-api-5d8c7b9f64-",
            "namespace": "<namespace>",
            "uid": "<uid>",
            "resourceVersion": "48151599",
            "creationTimestamp": _MADE,
            "labels": labels,
            "annotations": annotations,
            "ownerReferences": [{**owner, "controller": True, "blockOwnerDeletion": True}],
            "managedFields": [
                _managed("kube-controller-manager", [*labels, *annotations], names),
                _managed("k3s", [], ["conditions", "containerStatuses", "hostIP", "phase", "podIP", "startTime"]),
            ],
        },
        "spec": {
            "volumes": volumes,
            "containers": [_container(name) for name in names],
            "restartPolicy": "Always",
            "terminationGracePeriodSeconds": 30,
            "dnsPolicy": "ClusterFirst",
            "serviceAccountName": "checkout-api",
            "nodeName": "<node>",
            "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "fsGroup": 65532},
            "schedulerName": "default-scheduler",
            "tolerations": [
                {
                    "key": f"node.kubernetes.io/{taint}",
                    "operator": "Exists",
                    "effect": "NoExecute",
                    "tolerationSeconds": 300,
                }
                for taint in ("not-ready", "unreachable")
            ],
            "priority": 0,
            "enableServiceLinks": True,
            "preemptionPolicy": "PreemptLowerPriority",
        },
        "status": {
            "phase": "Running",
            "conditions": [
                {"type": kind, "status": "True", "lastProbeTime": None, "lastTransitionTime": _MADE}
                for kind in ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled")
            ],
            "hostIP": "<ip>",
            "podIP": "10.42.7.19",
            "podIPs": [{"ip": "10.42.7.19"}],
            "startTime": _MADE,
            "containerStatuses": [_container_status(name) for name in names],
            "qosClass": "Burstable",
        },
    }


def _container(name: str) -> dict[str, Any]:
    probe = {"httpGet": {"path": "/healthz", "port": 8080, "scheme": "HTTP"}, "timeoutSeconds": 1, "periodSeconds": 10}
    return {
        "name": name,
        "image": f"registry.example.com/shop/{name}:v1.17.0",
        "args": ["--listen=:8080", "--metrics=:9102", "--log-format=json"],
        "ports": [{"name": "http", "containerPort": 8080, "protocol": "TCP"}],
        "env": [
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}},
            {"name": "DATABASE_URL", "valueFrom": {"secretKeyRef": {"name": "checkout-api", "key": "database-url"}}},
            {"name": "GOMEMLIMIT", "value": "230MiB"},
        ],
        "resources": {"limits": {"memory": "256Mi"}, "requests": {"cpu": "50m", "memory": "128Mi"}},
        "volumeMounts": [
            {"name": "config", "readOnly": True, "mountPath": "/etc/checkout"},
            {
                "name": "kube-api-access-x7k2p",
                "readOnly": True,
                "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
            },
        ],
        "livenessProbe": probe,
        "readinessProbe": probe,
        "terminationMessagePath": "/dev/termination-log",
        "terminationMessagePolicy": "File",
        "imagePullPolicy": "IfNotPresent",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _container_status(name: str) -> dict[str, Any]:
    return {
        "name": name,
        "state": {"running": {"startedAt": _MADE}},
        "lastState": {},
        "ready": True,
        "restartCount": 0,
        "image": f"registry.example.com/shop/{name}:v1.17.0",
        "imageID": f"registry.example.com/shop/{name}@sha256:{7919:064x}",
        "containerID": f"containerd://{104729:064x}",
        "started": True,
    }


def _managed(manager: str, metadata: list[str], spec: list[str]) -> dict[str, Any]:
    """Who set which field: often the longest part of an object."""
    fields: dict[str, Any] = {
        "f:metadata": {"f:labels": {".": {}, **{f"f:{key}": {} for key in metadata}}},
        "f:spec": {
            f'k:{{"name":"{name}"}}': {".": {}, "f:image": {}, "f:env": {}, "f:ports": {}, "f:resources": {}}
            for name in spec
        },
    }
    return {
        "manager": manager,
        "operation": "Update",
        "apiVersion": "v1",
        "time": _MADE,
        "fieldsType": "FieldsV1",
        "fieldsV1": fields,
    }
